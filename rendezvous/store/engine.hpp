#pragma once
// Engine: what one store holds and who waits for what. One request in, its reply and the connections that it releases
// out. Pure: no socket, no clock, no log; it knows connections by number only and no dialects.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>

#include "common/error.hpp"
#include "rendezvous/store/limits.hpp"
#include "rendezvous/store/request.hpp"
#include "rendezvous/store/waits.hpp"

namespace ddprun::store {

class Engine {
public:
    explicit Engine(const Limits& limits) : limits_(limits) {}

    /// Serves a request of `from` and appends the reply, if one is due now, to `reply`. Each connection in the result
    /// is sent wire::kStopWaiting; `from` is never among them. Errors: kMalformed (the value is no number) and kLimit;
    /// `from` is then to be closed, and nothing was stored or replied.
    [[nodiscard]] Result<Released> apply(ConnectionId from, const Request& request, std::string& reply);

    /// The connection is closed.
    void forget(ConnectionId connection) { waits_.forget(connection); }

    [[nodiscard]] std::size_t key_count() const { return values_.size(); }
    /// What counts towards Limits::store_bytes.
    [[nodiscard]] std::size_t bytes() const { return stored_bytes_ + waits_.bytes(); }

private:
    [[nodiscard]] Result<Released> set(std::string_view key, std::string_view value);
    [[nodiscard]] Result<Released> compare_set(const Request& request, std::string& reply);
    [[nodiscard]] Result<Released> add(std::string_view key, std::int64_t amount, std::string& reply);
    [[nodiscard]] Result<Released> append(std::string_view key, std::string_view more);
    [[nodiscard]] Result<Released> multi_set(const Request& request);
    [[nodiscard]] Result<Released> wait(ConnectionId from, const Request& request, std::string& reply);
    [[nodiscard]] Result<Released> barrier(ConnectionId from, const Request& request, std::string& reply);
    [[nodiscard]] Result<Released> push(std::string_view queue, std::string_view element);
    [[nodiscard]] Result<Released> multi_get(const Request& request, std::string& reply) const;
    [[nodiscard]] Result<Released> list_keys(std::string& reply) const;
    void get(std::string_view key, std::string& reply) const;
    void pop(std::string_view queue, std::string& reply);
    [[nodiscard]] bool erase(std::string_view key);

    /// Stores without waking anybody. Errors: kLimit.
    [[nodiscard]] Result<void> store(std::string_view key, std::string_view value);
    /// The counter at `key` plus `amount`, wrapping around; nothing is stored. Errors: kMalformed.
    [[nodiscard]] Result<std::int64_t> sum_of(std::string_view key, std::int64_t amount) const;
    /// The value, or the empty one.
    [[nodiscard]] std::string_view value_of(std::string_view key) const;
    [[nodiscard]] bool present(std::string_view name) const;
    /// How many bytes the store grows by when `key` gets `value`.
    [[nodiscard]] std::size_t growth(std::string_view key, std::string_view value) const;
    [[nodiscard]] Result<void> make_sure_of_room(std::size_t more_bytes) const;

    Limits limits_;
    std::unordered_map<std::string, std::string, StringHash, std::equal_to<>> values_;
    std::unordered_map<std::string, std::deque<std::string>, StringHash, std::equal_to<>> queues_;  ///< no empty ones
    Waits waits_;
    std::size_t stored_bytes_ = 0;
};

/// What a key, or an element of a queue, is taken to need beside its own bytes and its value's.
inline constexpr std::size_t kEntryBytes = 96;

}  // namespace ddprun::store
