#pragma once
// Who is in the next worker group, and with which ranks. Pure; used by step() alone.

#include <string_view>
#include <vector>

#include "rendezvous/coordinator/messages.hpp"
#include "rendezvous/coordinator/state.hpp"

namespace ddprun::coordinator {

/// Digits compare as numbers: "n2" before "n10". Names that are equal so ("n2", "n02") compare as plain text.
[[nodiscard]] bool natural_less(std::string_view left, std::string_view right);

/// `candidates` (keys of state.nodes) in rank order: members of the newest group first, in their order; then those that
/// asked for a place, by it; then by natural host-name order, then by node id.
void sort_by_rank(std::vector<NodeId>& candidates, const State& state);

/// The members of the next group and their assignments: the first max_nodes of the sorted candidates. master_addr is
/// left empty.
[[nodiscard]] std::map<NodeId, Member> form_group(std::vector<NodeId> candidates, const State& state, int master_port);

}  // namespace ddprun::coordinator
