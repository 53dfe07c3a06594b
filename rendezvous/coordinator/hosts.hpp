#pragma once
// Rules about hosts that end worker groups: strikes and cool-down, the breaker, and nodes that are set aside. A host is
// known by the display name of its node, so that what it did counts for the next ddprun there. Private to the
// coordinator.

#include <chrono>
#include <string>
#include <vector>

#include "common/error.hpp"
#include "rendezvous/coordinator/transition.hpp"

namespace ddprun::coordinator {

/// A group that ends sooner than this after its start has made no progress that would excuse the host that ended it.
inline constexpr std::chrono::seconds kProgress{60};
/// The number of groups without progress that a host's loss may end: the circuit breaker.
inline constexpr int kMaxEarlyLosses = 3;
/// The number of groups in a row without progress that outages of the network may end.
inline constexpr int kMaxEarlyOutages = 10;

/// Counts the failure of a worker of `host`, or its loss, against it.
void strike(State& state, const std::string& host);
/// Returns when the cool-down of the node's host ends: until then it gets workers only if the job cannot do without it.
[[nodiscard]] TimePoint cool_down_end(const State& state, const Node& node);
[[nodiscard]] bool is_cooling_down(const State& state, const Node& node);

/// Counts the losses of the newest group, which has lasted that long, against their hosts. The circuit breaker sets
/// aside a host that has ended too many groups soon after their start. Returns the name of one that the job cannot do
/// without; empty: there is none. If the network cuts off half of the group or more, several nodes, that counts against
/// none of them, but in State::early_outages.
[[nodiscard]] std::string count_losses(Transition& t, Duration lasted);

/// Counts cut links, at least one, as a strike of the node with most of them. If no node has more links than the
/// others, counts them against the one with more cut links in the last hour, or else with more strikes, or else one
/// without the daemon. If the job can do without that node, it cools down for an hour, because the same nodes would
/// fail again; only undrain() ends that.
void strike_end_of(State& state, const std::vector<diagnosis::CutLink>& links);

/// Returns why the nodes of `host` take no part, as a clause for people; empty: they do.
[[nodiscard]] std::string why_set_aside(const State& state, const std::string& host);
/// Returns "; node n3 is set aside: `ddpctl undrain n3` lets it take part"; empty: no node that is here is.
[[nodiscard]] std::string hint_at_set_aside(const State& state);
/// Forgets the hosts without a node, strikes, cut links or an order, if there are very many.
void forget_hosts(State& state);

/// An order of an operator (ddpctl drain, undrain). Returns its effect, or the reason of its refusal.
[[nodiscard]] Result<std::string> drain(Transition& t, const std::string& host);
[[nodiscard]] Result<std::string> undrain(Transition& t, const std::string& host);

}  // namespace ddprun::coordinator
