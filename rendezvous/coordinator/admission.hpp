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

/// The room that a job has for a joining node.
enum class Room {
    kOpen,      ///< it may take the node
    kComplete,  ///< it has its fixed number of nodes; a loss may not be noticed yet
    kEnding,    ///< it is over or bound to end: the node belongs to the next job
};

/// Returns the room for a node that joins now, is new to the job and was started without --spare. Options, command and
/// user of the node are not considered.
[[nodiscard]] Room room_for_node(const State& state);

/// Returns whether, and why, this Join cannot be served.
[[nodiscard]] Refusal refusal(const State& state, const NodeId& id, const Join& join);

}  // namespace ddprun::coordinator
