#pragma once
// Chooses the members of the next worker group and their ranks. Pure; used by step() alone.

#include <string_view>
#include <vector>

#include "rendezvous/coordinator/state.hpp"
#include "rendezvous/protocol/messages.hpp"

namespace ddprun::coordinator {

/// Compares names with digits as numbers: "n2" before "n10". Names that are equal then ("n2", "n02") compare as text.
[[nodiscard]] bool natural_less(std::string_view left, std::string_view right);

/// Sorts `candidates` (keys of state.nodes) by rank: members of the newest group first, in their order; then nodes that
/// requested a rank, by that rank; then by natural host-name order, then by node id.
void sort_by_rank(std::vector<NodeId>& candidates, const State& state);

/// Returns the members of the next group with their assignments: the first max_nodes of the sorted candidates. Leaves
/// master_addr empty.
[[nodiscard]] std::map<NodeId, Member> form_group(std::vector<NodeId> candidates, const State& state, int master_port);

}  // namespace ddprun::coordinator
