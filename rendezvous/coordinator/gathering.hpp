#pragma once
// Rules from waiting nodes to a worker group (kGathering, kOpening): when it starts, how long it waits for missing
// nodes (join_timeout), and when it gives up. Private to the coordinator.

#include "rendezvous/coordinator/transition.hpp"

namespace ddprun::coordinator {

/// Returns whether a departure has left too few nodes for another group.
[[nodiscard]] bool departure_ends_job(const State& state);
/// Closes the round, waits longer, or ends the job, if the phase is kGathering. Called whenever a node or the time has
/// changed.
void gather(Transition& t);
/// Lets nodes take part, one of which has just become able to.
void available(Transition& t);
/// Starts the next group with the nodes that are eligible now.
void store_opened(Transition& t, const StoreOpened& event);
/// Tries again for a while, then ends the job: no group can start without a store.
void store_failed(Transition& t, const StoreFailed& event);
/// Tries again to open a store, when the time has come.
void retry_store(Transition& t);

}  // namespace ddprun::coordinator
