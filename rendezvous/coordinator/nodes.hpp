#pragma once
// Rules about single nodes: which of them count, and what follows when one joins, leaves or is lost. Private to the
// coordinator.

#include "rendezvous/coordinator/transition.hpp"

namespace ddprun::coordinator {

/// Admits a new node, reconnects a known one, or refuses it. `beside_daemon`: as in NodeMessage.
void join(Transition& t, const NodeId& id, const Join& message, bool beside_daemon);
/// Starts the time in which the node may reconnect. `broken`: as in NodeDisconnected.
void disconnected(Transition& t, const NodeId& id, bool broken);
/// Returns when the node is lost unless it is heard, or reconnects, before.
[[nodiscard]] TimePoint lost_at(const Node& node, const Config& config);
/// Returns whether the network has broken the node's connection, and its agent may still look for this daemon.
[[nodiscard]] bool may_look_for_daemon(const State& state, const Node& node);
/// Handles the signal that a node got: stops its group, or releases it if it has no processes.
void leave(Transition& t, const NodeId& id, int signal);
/// Sends a leaving node without processes its verdict, disconnects and forgets it.
void release(Transition& t, const NodeId& id);
/// Marks the nodes as lost whose silence or reconnect grace has lasted too long.
void lose_silent_nodes(Transition& t);
/// Marks the members as lost that have not reported the end of their workers in time.
void lose_unstopped_nodes(Transition& t);

}  // namespace ddprun::coordinator
