#pragma once
// Store: the key-value store through which the ranks of one generation find each other.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ddp/error.hpp"
#include "ddp/export.hpp"

namespace DDP_EXPORT ddp {

/// The key-value store through which the ranks of one generation find each other. Keys and values are bytes. Every wait
/// has a timeout. An interface, so that the library does not depend on how the values travel. Implementations may be
/// called from any thread.
class Store {
public:
    virtual ~Store() = default;
    /// Sets the key to `value`, which replaces an older one.
    virtual void set(std::string_view key, std::string_view value) = 0;
    /// Waits until the key exists and returns its value. Throws Error{Timeout} naming the key.
    [[nodiscard]] virtual std::string get(std::string_view key, std::chrono::milliseconds timeout) = 0;
    /// Waits until all keys exist and returns their values. Throws Error{Timeout}. Override it if a round trip per
    /// key is slow.
    [[nodiscard]] virtual std::vector<std::string> get_all(const std::vector<std::string>& keys,
                                                           std::chrono::milliseconds timeout) {
        const SteadyTime end = end_of(timeout);
        std::vector<std::string> values;
        for (const std::string& key : keys) values.push_back(get(key, time_left(end)));
        return values;
    }
    /// Does the same as get(), but returns nothing at the timeout, for callers that poll. Override it if making the
    /// text of a Timeout is slow.
    [[nodiscard]] virtual std::optional<std::string> try_get(std::string_view key, std::chrono::milliseconds timeout) {
        try {
            return get(key, timeout);
        } catch (const Error& error) {
            if (error.code() != ErrorCode::Timeout) throw;
            return std::nullopt;
        }
    }
    /// Waits until all keys exist. Returns false at the timeout.
    [[nodiscard]] virtual bool wait_for_keys(const std::vector<std::string>& keys, std::chrono::milliseconds timeout) {
        const SteadyTime end = end_of(timeout);
        for (const std::string& key : keys) {
            if (!try_get(key, time_left(end))) return false;
        }
        return true;
    }
    /// Returns the keys that do not exist now. Override it if a round trip per key is slow.
    [[nodiscard]] virtual std::vector<std::string> missing(const std::vector<std::string>& keys) {
        std::vector<std::string> absent;
        for (const std::string& key : keys) {
            if (!try_get(key, std::chrono::milliseconds(0))) absent.push_back(key);
        }
        return absent;
    }
    /// Sets the key to `value` unless it exists, atomically. Returns the key's value after the call, which is the same
    /// for all callers. `value` must not be empty.
    [[nodiscard]] virtual std::string set_once(std::string_view key, std::string_view value) = 0;
    /// Removes a key that no rank needs any more. The default keeps it.
    virtual void erase(std::string_view /*key*/) {}
    /// Adds to a decimal counter that starts at 0 and returns the sum.
    virtual std::int64_t add(std::string_view key, std::int64_t amount) = 0;
    /// Returns this host's numeric address towards the store, which peers can connect to.
    [[nodiscard]] virtual std::string local_address() const = 0;

private:
    using SteadyTime = std::chrono::steady_clock::time_point;

    /// Returns the time at which `timeout` ends, at most a year from now: milliseconds::max() must not overflow.
    [[nodiscard]] static SteadyTime end_of(std::chrono::milliseconds timeout) {
        constexpr std::chrono::hours kLongest(24 * 365);
        return std::chrono::steady_clock::now() + (timeout < kLongest ? timeout : kLongest);
    }
    [[nodiscard]] static std::chrono::milliseconds time_left(SteadyTime end) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
        return std::max(left, std::chrono::milliseconds(0));
    }
};

}  // namespace ddp
