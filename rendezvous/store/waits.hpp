#pragma once
// Waits: which connection waits for which names (rules W1 to W7 of the protocol). Pure; part of the engine.

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ddprun::store {

/// A connection as the server numbers them; never used again for another one.
enum class ConnectionId : std::uint64_t {};

/// Connections whose wait is over, in the order in which they are told.
using Released = std::vector<ConnectionId>;

/// Lets an unordered_map with std::string keys be searched by a view.
struct StringHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const noexcept { return std::hash<std::string_view>{}(text); }
};

class Waits {
public:
    /// `connection`, which waits for nothing, now waits for all of `names`. They are not empty, absent, and may repeat.
    void begin(ConnectionId connection, std::span<const std::string_view> names);
    /// Ends its wait, if there is one, without telling it.
    void forget(ConnectionId connection);
    /// The name has come: takes it out of the set of everybody who waits for it. A name taken out stays out (W4).
    [[nodiscard]] Released release_all(std::string_view name);
    /// The same, only for the connection that has waited longest.
    [[nodiscard]] Released release_first(std::string_view name);

    /// What the awaited names hold in memory, with an allowance for each.
    [[nodiscard]] std::size_t bytes() const { return bytes_; }

private:
    /// Waits are numbered as they begin: the lower has waited longer.
    using Ticket = std::uint64_t;
    using Waiters = std::map<Ticket, ConnectionId>;
    struct Wait {
        Ticket ticket = 0;
        std::vector<std::string> names;  ///< those it began with
        std::size_t missing = 0;         ///< how many of them have not come yet
    };

    void count_down(ConnectionId connection, Released& released);
    void erase(std::unordered_map<ConnectionId, Wait>::iterator wait);

    std::unordered_map<ConnectionId, Wait> waits_;
    std::unordered_map<std::string, Waiters, StringHash, std::equal_to<>> waiters_;  ///< no empty ones
    Ticket next_ticket_ = 0;
    std::size_t bytes_ = 0;
};

/// What a name that is waited for is taken to need beside its own bytes.
inline constexpr std::size_t kAwaitedNameBytes = 160;

}  // namespace ddprun::store
