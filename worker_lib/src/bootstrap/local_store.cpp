#include "worker_lib/src/bootstrap/local_store.hpp"

#include <fmt/format.h>

#include <map>

#include "common/mutex.hpp"
#include "ddp/error.hpp"
#include "worker_lib/src/util/timeouts.hpp"

namespace ddp::detail {

namespace {

class LocalStore final : public Store {
public:
    explicit LocalStore(std::string address) : address_(std::move(address)) {}

    void set(std::string_view key, std::string_view value) override {
        const ddprun::Lock lock(mutex_);
        values_.insert_or_assign(std::string(key), std::string(value));
        changed_.notify_all();
    }

    std::string get(std::string_view key, std::chrono::milliseconds timeout) override {
        const auto deadline = deadline_in(timeout);
        const ddprun::Lock lock(mutex_);
        for (bool in_time = true;; in_time = changed_.wait_until(mutex_, deadline)) {
            if (const auto found = values_.find(key); found != values_.end()) return found->second;
            if (in_time) continue;
            throw Error(ErrorCode::Timeout, fmt::format("the key '{}' was not set within {} ms", key, timeout.count()));
        }
    }

    std::string set_once(std::string_view key, std::string_view value) override {
        const ddprun::Lock lock(mutex_);
        const auto [entry, is_new] = values_.try_emplace(std::string(key), value);
        if (is_new) changed_.notify_all();
        return entry->second;
    }

    void erase(std::string_view key) override {
        const ddprun::Lock lock(mutex_);
        if (const auto found = values_.find(key); found != values_.end()) values_.erase(found);
    }

    std::int64_t add(std::string_view key, std::int64_t amount) override {
        const ddprun::Lock lock(mutex_);
        auto& value = values_.try_emplace(std::string(key), "0").first->second;
        const std::int64_t sum = std::stoll(value) + amount;
        value = std::to_string(sum);
        changed_.notify_all();
        return sum;
    }

    std::string local_address() const override { return address_; }

private:
    const std::string address_;
    ddprun::Mutex mutex_;
    ddprun::Condition changed_;
    std::map<std::string, std::string, std::less<>> values_ GUARDED_BY(mutex_);
};

}  // namespace

std::shared_ptr<Store> make_local_store(std::string address) {
    return std::make_shared<LocalStore>(std::move(address));
}

}  // namespace ddp::detail
