#pragma once
// Chooses the members of the next worker group and their ranks. Pure; used by step() alone.

#include <vector>

#include "rendezvous/coordinator/state.hpp"
#include "rendezvous/protocol/messages.hpp"

namespace ddprun::coordinator {

/// Returns the nodes of the next group in the order in which they were chosen: members of the newest group, in the
/// order of their ranks; then nodes of hosts that had a rank, nodes that requested one, by that rank; then by natural
/// host-name order, then by node id. Hosts that cool down are chosen only if there are fewer than min_nodes others.
[[nodiscard]] std::vector<NodeId> choose_members(const State& state);

/// Returns the members of the next group with their assignments. A member of the newest group keeps its node rank. A
/// free one goes to the host that had it, else to a node that requested it, else to another new node, else to the
/// members whose ranks are too high now. Leaves master_addr empty.
[[nodiscard]] std::map<NodeId, Member> form_group(const std::vector<NodeId>& chosen, const State& state,
                                                  int master_port);

}  // namespace ddprun::coordinator
