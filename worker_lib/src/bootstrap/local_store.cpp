#include "worker_lib/src/bootstrap/local_store.hpp"

#include <fmt/format.h>

#include <condition_variable>
#include <map>
#include <mutex>

#include "ddp/error.hpp"
#include "worker_lib/src/util/timeouts.hpp"

namespace ddp::detail {

namespace {

class LocalStore final : public Store {
public:
    explicit LocalStore(std::string address) : address_(std::move(address)) {}

    void set(std::string_view key, std::string_view value) override {
        const std::lock_guard lock(mutex_);
        values_.insert_or_assign(std::string(key), std::string(value));
        changed_.notify_all();
    }

    std::string get(std::string_view key, std::chrono::milliseconds timeout) override {
        std::unique_lock lock(mutex_);
        const auto found = [&] { return values_.find(key) != values_.end(); };
        if (!changed_.wait_until(lock, deadline_in(timeout), found)) {
            throw Error(ErrorCode::Timeout, fmt::format("the key '{}' was not set within {} ms", key, timeout.count()));
        }
        return values_.find(key)->second;
    }

    std::string set_once(std::string_view key, std::string_view value) override {
        const std::lock_guard lock(mutex_);
        const auto [entry, is_new] = values_.try_emplace(std::string(key), value);
        if (is_new) changed_.notify_all();
        return entry->second;
    }

    void erase(std::string_view key) override {
        const std::lock_guard lock(mutex_);
        if (const auto found = values_.find(key); found != values_.end()) values_.erase(found);
    }

    std::int64_t add(std::string_view key, std::int64_t amount) override {
        const std::lock_guard lock(mutex_);
        auto& value = values_.try_emplace(std::string(key), "0").first->second;
        const std::int64_t sum = std::stoll(value) + amount;
        value = std::to_string(sum);
        changed_.notify_all();
        return sum;
    }

    std::string local_address() const override { return address_; }

private:
    const std::string address_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<std::string, std::string, std::less<>> values_;
};

}  // namespace

std::shared_ptr<Store> make_local_store(std::string address) {
    return std::make_shared<LocalStore>(std::move(address));
}

}  // namespace ddp::detail
