#pragma once
// Decides whether a node may join. Pure.

#include <chrono>
#include <cstddef>
#include <string>

#include "rendezvous/coordinator/state.hpp"

namespace ddprun::coordinator {

inline constexpr std::size_t kMaxLostNodes = 1'024;  ///< lost nodes that are remembered in case they reconnect
inline constexpr std::size_t kMaxNameBytes = 255;    ///< of a node id or host name

/// The reason why a Join is not served.
struct Refusal {
    std::string reason;      ///< empty: it is served
    bool try_again = false;  ///< as in Rejected
    std::chrono::milliseconds try_for{0};
};

/// Whether a job takes a node that comes now.
enum class Room {
    kOpen,
    kComplete,  ///< it has all nodes that it takes, unless one has just died unnoticed
    kEnding,    ///< it is over, or bound to end: the node can only be one of the next job
};
[[nodiscard]] Room room_for_node(const State& state);

/// Returns whether, and why, this Join cannot be served.
[[nodiscard]] Refusal refusal(const State& state, const NodeId& id, const Join& join);

}  // namespace ddprun::coordinator
