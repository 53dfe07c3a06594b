#pragma once
// Waits: which connection waits for which names (rules W1 to W7 of the protocol). Pure; part of the engine.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "rendezvous/store/hash.hpp"

namespace ddprun::store {

/// A connection as the server numbers them; never used again for another one.
enum class ConnectionId : std::uint64_t {};

class Waits {
public:
    explicit Waits(const HashSeed& seed) : names_(0, SeededHash{seed}) {}

    /// `connection`, which waits for nothing, now waits for all of `names`. They are not empty, absent, and may repeat.
    /// When it throws std::bad_alloc, forget() is still to be called.
    void begin(ConnectionId connection, std::span<const std::string_view> names);
    /// Ends its wait, if there is one, without telling it.
    void forget(ConnectionId connection);
    /// The name has come: takes it out of the set of everybody who waits for it. A name taken out stays out (W4).
    void release_all(std::string_view name) noexcept;
    /// The same, only for the connection that has waited longest.
    void release_first(std::string_view name) noexcept;

    /// Those whose wait is over since forget_released(), in the order in which they are told.
    [[nodiscard]] std::span<const ConnectionId> released() const { return released_; }
    void forget_released() { released_.clear(); }

    /// How many names are waited for, counted once for each connection.
    [[nodiscard]] std::size_t size() const { return size_; }
    /// What the awaited names hold in memory, with an allowance for each.
    [[nodiscard]] std::size_t bytes() const { return bytes_; }

private:
    struct Waiter;
    struct Queue {  ///< who waits for one name, the longest first
        Waiter* first = nullptr;
        Waiter* last = nullptr;
    };
    using Names = std::unordered_map<std::string, Queue, SeededHash, std::equal_to<>>;  ///< no empty queues
    struct Wait;
    using Connections = std::unordered_map<ConnectionId, Wait>;
    struct Waiter {
        Names::value_type* name = nullptr;  ///< null when it has come
        Connections::value_type* connection = nullptr;
        Waiter* before = nullptr;
        Waiter* after = nullptr;
    };
    struct Wait {
        /// One for each name that it began with.
        [[nodiscard]] std::span<Waiter> waiters() { return {many ? many.get() : &one, count}; }
        Waiter one;
        std::unique_ptr<Waiter[]> many;  ///< in place of `one` when there are several
        std::size_t count = 0;
        std::size_t missing = 0;  ///< how many of them have not come yet
    };

    /// Takes it out of its queue; the name stays, even with an empty one.
    void unlink(Waiter& waiter);
    void come(Waiter& waiter);

    Connections connections_;
    Names names_;
    /// Has room for all of connections_: who is to be told is told, also when memory runs out.
    std::vector<ConnectionId> released_;
    std::size_t size_ = 0;
    std::size_t bytes_ = 0;
};

/// What a name that is waited for is taken to need beside its own bytes.
inline constexpr std::size_t kAwaitedNameBytes = 160;

}  // namespace ddprun::store
