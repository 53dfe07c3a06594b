#pragma once
// Formats lines of the daemon's log. Pure.

#include <cstddef>
#include <string>
#include <vector>

#include "rendezvous/coordinator/state.hpp"

namespace ddprun::daemon {

inline constexpr std::size_t kMaxTableNodes = 64;

/// Returns the newest worker group, a line for each of its first kMaxTableNodes nodes: "  node 0  n1  ranks 0-3".
[[nodiscard]] std::vector<std::string> group_table(const coordinator::State& state);

}  // namespace ddprun::daemon
