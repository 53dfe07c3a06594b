#pragma once
// Rules about a worker group, its end, and what follows (kRunning, kStopping). Private to the coordinator.

#include <chrono>
#include <optional>
#include <string>

#include "rendezvous/coordinator/transition.hpp"

namespace ddprun::coordinator {

/// Returns a cause without a failure and without a verdict.
[[nodiscard]] Cause because(std::string reason);
/// Returns a role of the missing members of the last group that has no restart left: then no other node may take their
/// place. nullopt: each of their roles has one. `is_missing` selects these members; if none is known any more, the
/// roles of all nodes count.
[[nodiscard]] std::optional<std::string> role_without_restart(const State& state, bool (*is_missing)(const Node&));
/// Returns whether the failure that is being handled ends the job: its role has no restart left, or the worker forbids
/// one.
[[nodiscard]] bool failure_ends_job(const State& state);
/// Returns whether this stop may end the job. Then a leaving node waits for that verdict.
[[nodiscard]] bool may_end_the_job(const State& state);
/// Returns the order to stop the workers of `generation`, which is the group's, for the cause of the stop.
[[nodiscard]] Abort abort_for_cause(const State& state, Generation generation);
/// Stops the group, or makes this failure the cause of a stop in progress if it explains the earlier one.
void worker_failed(Transition& t, const NodeId& id, const WorkerFailed& message);
/// Remembers that a worker exited with code 0 while others of its node still run.
void worker_finished(Transition& t, const NodeId& id, const WorkerFinished& message);
/// Handles the report of a node that none of its workers of that generation runs any more. `preempted`: they have
/// succeeded, some of them by stopping at the notice of preemption.
void group_ended(Transition& t, const NodeId& id, Generation generation, bool succeeded, bool preempted = false);
/// Goes from kRunning to kStopping, or further when no worker runs.
void stop_group(Transition& t, Cause cause);
/// Changes the reason of the stop, and sends it to the members that are still stopping.
void change_reason(Transition& t, std::string reason);
/// Handles a member that was lost, or left, at `left_at` while its group is being stopped. If another member's worker
/// failed at about that time, `other`, the departure, becomes the cause: when a node ends, workers elsewhere lose their
/// connections to it and fail, and their agents may report that before the end of the node itself is seen.
void reconsider_cause(Transition& t, TimePoint left_at, Cause other);
/// Concludes the stop when no worker runs any more. After a failure it waits for a pending diagnosis, but not longer
/// than kDiagnosisTimeout.
void conclude_if_stopped(Transition& t);
inline constexpr std::chrono::seconds kDiagnosisTimeout{2};
/// Makes the conclusion of a stop wait for Diagnosed.
void diagnosis_pending(Transition& t, const DiagnosisPending& event);
/// Stores the diagnosis, and concludes a stop that waited for it.
void diagnosis(Transition& t, const Diagnosed& event);

}  // namespace ddprun::coordinator
