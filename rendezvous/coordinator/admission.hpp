#pragma once
// Decides whether a node may join. Pure; private to the coordinator.

#include <cstddef>
#include <string>

#include "rendezvous/coordinator/state.hpp"

namespace ddprun::coordinator {

inline constexpr std::size_t kMaxLostNodes = 1'024;  ///< lost nodes that are remembered in case they reconnect
inline constexpr std::size_t kMaxNameBytes = 255;    ///< of a node id or host name

/// Returns why this Join cannot be served, or an empty text.
[[nodiscard]] std::string refusal(const State& state, const NodeId& id, const Join& join);

}  // namespace ddprun::coordinator
