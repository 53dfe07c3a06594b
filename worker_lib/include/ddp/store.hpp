#pragma once
// Store: the key-value store through which the ranks of one generation find each other. An interface of ours, so that
// the library does not depend on how the values travel. Implementations may be called from any thread.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ddp/error.hpp"

namespace ddp {

class Store {
public:
    virtual ~Store() = default;
    virtual void set(std::string_view key, std::string_view value) = 0;
    /// Waits until the key exists. Throws Error{Timeout} naming the key.
    [[nodiscard]] virtual std::string get(std::string_view key, std::chrono::milliseconds timeout) = 0;
    /// Waits until all the keys exist; their values. Throws Error{Timeout}. Overridden where a round trip for each
    /// costs.
    [[nodiscard]] virtual std::vector<std::string> get_all(const std::vector<std::string>& keys,
                                                           std::chrono::milliseconds timeout) {
        constexpr std::chrono::hours kLongest(24 * 365);  // "for ever" must not overflow
        const auto deadline = std::chrono::steady_clock::now() + (timeout < kLongest ? timeout : kLongest);
        std::vector<std::string> values;
        for (const std::string& key : keys) {
            const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
            values.push_back(get(key, left > std::chrono::milliseconds(0) ? left : std::chrono::milliseconds(0)));
        }
        return values;
    }
    /// As get(), but nothing when the time is over, without a word about why: for those who look again and again.
    /// Overridden where those words cost.
    [[nodiscard]] virtual std::optional<std::string> try_get(std::string_view key, std::chrono::milliseconds timeout) {
        try {
            return get(key, timeout);
        } catch (const Error& error) {
            if (error.code() != ErrorCode::Timeout) throw;
            return std::nullopt;
        }
    }
    /// Whether all keys are there when the time is over, or before: as try_get(), without their values.
    [[nodiscard]] virtual bool came_by(const std::vector<std::string>& keys, std::chrono::milliseconds timeout) {
        const auto deadline = std::chrono::steady_clock::now() + timeout;
        for (const std::string& key : keys) {
            const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
            if (!try_get(key, std::max(left, std::chrono::milliseconds(0)))) return false;
        }
        return true;
    }
    /// Those of the keys that are not there now. Overridden where a round trip for each costs.
    [[nodiscard]] virtual std::vector<std::string> missing(const std::vector<std::string>& keys) {
        std::vector<std::string> absent;
        for (const std::string& key : keys) {
            if (!try_get(key, std::chrono::milliseconds(0))) absent.push_back(key);
        }
        return absent;
    }
    /// Sets the key unless it exists, in one step; the value that it has then. So all who call it for one key get the
    /// same answer. `value` must not be empty.
    [[nodiscard]] virtual std::string set_once(std::string_view key, std::string_view value) = 0;
    /// Forgets the key: nobody needs it any more. The default does nothing: it stays.
    virtual void erase(std::string_view /*key*/) {}
    /// Adds to a decimal counter that starts at 0 and returns the sum.
    virtual std::int64_t add(std::string_view key, std::int64_t amount) = 0;
    /// This host's numeric address towards the store: the one to give to peers.
    [[nodiscard]] virtual std::string local_address() const = 0;
};

}  // namespace ddp
