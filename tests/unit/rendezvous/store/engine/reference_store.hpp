#pragma once
// ReferenceStore: the store's protocol, written as plainly as possible, to be compared with the fast store. It shares
// the limits with it and no code. Connections are numbers, without sockets; each opens at its first use.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/store/codec/limits.hpp"

namespace ddprun::store::test {

class ReferenceStore {
public:
    explicit ReferenceStore(const Options& options) : options_(options) {}

    /// Takes bytes that arrive; serves nothing yet.
    void receive(std::uint64_t connection, std::string_view bytes);
    /// Serves complete requests of the connection, at most so many.
    void serve(std::uint64_t connection, std::size_t max_requests);
    void close(std::uint64_t connection);

    [[nodiscard]] bool is_closed(std::uint64_t connection) { return peers_[connection].closed; }
    [[nodiscard]] bool is_waiting(std::uint64_t connection) { return !peers_[connection].awaited.empty(); }
    /// Returns how much was sent to it since take_sent().
    [[nodiscard]] std::size_t sent_bytes(std::uint64_t connection) { return peers_[connection].sent.size(); }
    /// Returns whether `actual` was sent to it since the last call, with the keys of answers to LIST_KEYS in any order.
    [[nodiscard]] bool take_sent(std::uint64_t connection, std::string actual);
    /// Forgets a closed one.
    void remove(std::uint64_t connection) { peers_.erase(connection); }

    [[nodiscard]] const std::map<std::string, std::string>& keys() const { return keys_; }
    [[nodiscard]] const std::map<std::string, std::deque<std::string>>& queues() const { return queues_; }
    /// Returns the number of awaited names, counted once for each connection.
    [[nodiscard]] std::vector<std::string> awaited() const;

private:
    enum class Dialect { kUnknown, kModern, k1_13, k2_1 };
    struct Peer {
        std::string input;
        std::string sent;
        std::vector<std::pair<std::size_t, std::size_t>> lists;  ///< where in `sent` answers to LIST_KEYS lie
        std::set<std::string> awaited;
        std::uint64_t waits_since = 0;
        Dialect dialect = Dialect::kUnknown;
        bool closed = false;
    };
    class Fields;
    enum class Outcome { kServed, kIncomplete, kRefused };

    Outcome serve_one(Peer& peer);
    Outcome settle_dialect(Peer& peer) const;
    /// The code that the modern dialect has for this one; nothing when it is not served.
    [[nodiscard]] static std::optional<int> modern_code(Dialect dialect, unsigned char code);
    Outcome serve_key(int code, Peer& peer, Fields& fields);
    Outcome serve_number(int code, Peer& peer, Fields& fields);
    Outcome serve_keys(int code, Peer& peer, Fields& fields);
    Outcome serve_plain(int code, Peer& peer, Fields& fields);
    void begin_wait(Peer& peer, std::set<std::string> names);
    void written(const std::string& key);
    void pushed(const std::string& name);
    [[nodiscard]] bool present(const std::string& name) const { return keys_.contains(name) || queues_.contains(name); }

    Options options_;
    std::map<std::string, std::string> keys_;
    std::map<std::string, std::deque<std::string>> queues_;  ///< no empty ones
    std::map<std::uint64_t, Peer> peers_;
    std::uint64_t waits_ = 0;
};

}  // namespace ddprun::store::test
