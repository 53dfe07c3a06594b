#pragma once
// Rules that explain to nodes without workers why they wait. Private to the coordinator.

#include <cstddef>
#include <string>
#include <vector>

#include "rendezvous/coordinator/transition.hpp"

namespace ddprun::coordinator {

/// Sends the reason to all waiting nodes when it has changed, and every few seconds.
void explain_waiting(Transition& t);
/// Sends the reason to one node at once.
void explain_waiting_to(Transition& t, const NodeId& id);
/// Hosts in natural order: the first kMaxHostsListed of them, and the number of all.
struct HostList {
    std::vector<std::string> first;
    std::size_t total = 0;
};
inline constexpr std::size_t kMaxHostsListed = 64;
[[nodiscard]] HostList hosts_of(const State& state, Subset subset);
/// Returns "n1, n2, n3, n4, n5 and 61 more".
[[nodiscard]] std::string some_of(const HostList& hosts);

}  // namespace ddprun::coordinator
