#pragma once
// Waits: owns the names that each connection waits for (rules W1 to W7 of the protocol). Pure; part of the engine.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "rendezvous/store/codec/hash.hpp"

namespace ddprun::store {

/// The number of a connection, given by the server; never reused.
enum class ConnectionId : std::uint64_t {};

class Waits {
public:
    explicit Waits(const HashSeed& seed) : names_(0, SeededHash{seed}) {}

    /// Makes `connection`, which waits for nothing, wait for all of `names`. There is at least one, none of them is
    /// stored, and they may repeat. When it throws std::bad_alloc, forget() is still to be called.
    void begin(ConnectionId connection, std::span<const std::string_view> names);
    /// Ends the wait of the connection, if there is one, without adding it to released().
    void forget(ConnectionId connection);
    /// Removes a name that has been stored from the wait of each connection that waits for it. Deleting the name later
    /// does not add it again (W4).
    void release_all(std::string_view name) noexcept;
    /// Does the same only for the connection that has waited longest.
    void release_first(std::string_view name) noexcept;

    /// Returns the connections whose wait has ended since forget_released(), in the order of their replies.
    [[nodiscard]] std::span<const ConnectionId> released() const { return released_; }
    void forget_released() { released_.clear(); }

    /// Returns the number of awaited names, counted once for each connection.
    [[nodiscard]] std::size_t size() const { return size_; }
    /// Returns the memory of the awaited names, with an allowance for each.
    [[nodiscard]] std::size_t bytes() const { return bytes_; }

private:
    struct Waiter;
    struct Queue {  ///< the connections that wait for one name, the longest first
        Waiter* first = nullptr;
        Waiter* last = nullptr;
    };
    using Names = std::unordered_map<std::string, Queue, SeededHash, std::equal_to<>>;  ///< no empty queues
    struct Wait;
    using Connections = std::unordered_map<ConnectionId, Wait>;
    struct Waiter {
        Names::value_type* name = nullptr;  ///< null when it has arrived
        Connections::value_type* connection = nullptr;
        Waiter* before = nullptr;
        Waiter* after = nullptr;
    };
    struct Wait {
        /// Returns one for each name that the wait began with.
        [[nodiscard]] std::span<Waiter> waiters() { return {many ? many.get() : &one, count}; }
        Waiter one;
        std::unique_ptr<Waiter[]> many;  ///< in place of `one` when there are several
        std::size_t count = 0;
        std::size_t missing = 0;  ///< how many of them have not arrived yet
    };

    /// Removes the waiter from its queue; the name stays, even with an empty queue.
    void unlink(Waiter& waiter);
    /// Removes the waiter's name, which has arrived, from its wait; ends the wait if it was the last one.
    void release(Waiter& waiter);

    Connections connections_;
    Names names_;
    /// Has room for all of connections_, so that a release allocates nothing.
    std::vector<ConnectionId> released_;
    std::size_t size_ = 0;
    std::size_t bytes_ = 0;
};

/// The allowance for an awaited name beside its own bytes.
inline constexpr std::size_t kAwaitedNameBytes = 160;

}  // namespace ddprun::store
