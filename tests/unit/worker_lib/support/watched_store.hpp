#pragma once
// WatchedStore: a store in memory that reports each access, so that a test can delay a rank that reads or writes.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "ddp/store.hpp"
#include "worker_lib/src/bootstrap/local_store.hpp"

namespace ddp::testing {

using std::chrono::milliseconds;

inline constexpr milliseconds kPatience{20'000};

/// Reports each key to the test before and after it is written, and before it is read. The test may delay the caller.
class WatchedStore final : public Store {
public:
    using Hook = std::function<void(std::string_view key, std::string_view value)>;

    void set(std::string_view key, std::string_view value) override {
        if (before) before(key, value);
        store_->set(key, value);
        if (after) after(key, value);
    }
    std::string set_once(std::string_view key, std::string_view value) override {
        if (before) before(key, value);
        std::string there = store_->set_once(key, value);
        if (after) after(key, value);
        return there;
    }
    std::string get(std::string_view key, milliseconds timeout) override {
        if (before_get) before_get(key);
        return store_->get(key, timeout);
    }
    std::int64_t add(std::string_view key, std::int64_t amount) override {
        if (before_add) before_add(key, amount);
        const std::int64_t value = store_->add(key, amount);
        if (after_add) after_add(key, amount);
        return value;
    }
    std::string local_address() const override { return store_->local_address(); }

    using AddHook = std::function<void(std::string_view key, std::int64_t amount)>;
    std::function<void(std::string_view key)> before_get;
    AddHook before_add;
    AddHook after_add;
    Hook before;
    Hook after;

private:
    const std::shared_ptr<Store> store_ = detail::make_local_store();
};

}  // namespace ddp::testing
