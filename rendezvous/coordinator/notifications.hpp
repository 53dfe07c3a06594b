#pragma once
// Rules about notifications: signals for the workers, which one node gets and the workers of all nodes are to get.
// Private to the coordinator.

#include "rendezvous/coordinator/transition.hpp"

namespace ddprun::coordinator {

/// Forwards a signal for the workers from a member of the running group to the other members that have workers.
void notify(Transition& t, const NodeId& id, const Notify& message);
/// Sends a member that has reconnected the notifications that may have been lost with its older connection. Its agent
/// ignores those that it has.
void repeat_notifications(Transition& t, const NodeId& id);

}  // namespace ddprun::coordinator
