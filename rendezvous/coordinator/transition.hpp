#pragma once
// Transition: the step in progress, and the rules that compute it, by subject. Private to the coordinator: other code
// calls step(). A rule changes the state, appends actions in the order in which they must happen, and adds its
// explanation to the reason.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/coordinator/coordinator.hpp"

namespace ddprun::coordinator {

struct Transition {
    State state;
    std::vector<Action> actions{};
    std::string reason{};

    void send(const NodeId& node, DaemonMessage message) { actions.push_back(Send{node, std::move(message)}); }
    /// Adds a clause to the reason.
    void say(std::string_view clause) { reason.append(reason.empty() ? "" : "; ").append(clause); }
};

inline constexpr std::size_t kMaxNodes = 16'384;     ///< joined at one time, spares included
inline constexpr std::size_t kMaxLostNodes = 1'024;  ///< lost nodes that are remembered in case they reconnect
inline constexpr int kMaxSlots = 4'096;              ///< workers on a node; kMaxNodes * kMaxSlots fits in an int
inline constexpr std::size_t kMaxNameBytes = 255;    ///< of a node id, host name or run id

// ---- nodes.cpp: joining, leaving and lost nodes

/// Returns whether the node is connected, or may reconnect within its grace, and is not leaving.
[[nodiscard]] bool present(const Node& node);
/// Returns whether the node can be given workers now.
[[nodiscard]] bool eligible(const Node& node);
[[nodiscard]] int count_present(const State& state);
[[nodiscard]] int count_eligible(const State& state);
[[nodiscard]] std::vector<NodeId> eligible_nodes(const State& state);

/// Admits a new node, reconnects a known one, or refuses it.
void join(Transition& t, const NodeId& id, const Join& message);
/// Starts the time in which the node may reconnect.
void disconnected(Transition& t, const NodeId& id);
/// Handles the signal that a node got: stops its group, or releases it if it has no processes.
void leave(Transition& t, const NodeId& id, int signal);
/// Sends a leaving node without processes its verdict, disconnects and forgets it.
void release(Transition& t, const NodeId& id);
/// Marks the nodes as lost whose silence or reconnect grace has lasted too long.
void lose_overdue_nodes(Transition& t);

// ---- admission.cpp

/// Returns why this Join cannot be served, or an empty text.
[[nodiscard]] std::string refusal(const State& state, const NodeId& id, const Join& join);

// ---- gathering.cpp: from waiting nodes to a worker group

/// Closes the round, waits longer, or ends the job, if the phase is kGathering. Called whenever a node or the time has
/// changed.
void gather(Transition& t);
/// Lets node `id`, which has no processes, take part. The one place that lets a running group grow.
void available(Transition& t, const NodeId& id);
/// Starts the next group with the nodes that are eligible now.
void store_opened(Transition& t, const StoreOpened& event);
/// Ends the job: no group can start without a store.
void store_failed(Transition& t, const StoreFailed& event);

// ---- running.cpp: a worker group, its end, and what follows

/// Returns a cause without a failure and without a verdict.
[[nodiscard]] Cause because(std::string reason);
[[nodiscard]] bool restart_is_left(const State& state);
/// Returns whether this stop may end the job. Then a leaving node waits for that verdict.
[[nodiscard]] bool may_end_the_job(const State& state);
/// Stops the group, or makes this failure the cause of a stop in progress if it explains the earlier one.
void worker_failed(Transition& t, const NodeId& id, const WorkerFailed& message);
/// Remembers that a worker exited with code 0 while others of its node still run.
void worker_finished(Transition& t, const NodeId& id, const WorkerFinished& message);
/// Handles the report of a node that none of its workers of that generation runs any more.
void group_ended(Transition& t, const NodeId& id, Generation generation, bool succeeded);
/// Goes from kRunning to kStopping, or further when no worker runs.
void stop_group(Transition& t, Cause cause);
/// Changes the reason of the stop, and sends it to the members that are still stopping.
void change_reason(Transition& t, std::string reason);
/// Handles a member that was lost, or left, at `left_at` while its group is being stopped. If another member's worker
/// failed at about that time, the departure becomes the cause: when a node ends, workers elsewhere lose their
/// connections to it and fail, and their agents may report that before the end of the node itself is seen.
void reconsider_cause(Transition& t, TimePoint left_at, const std::string& reason);
/// Concludes the stop when no worker runs any more. After a failure it waits for a pending diagnosis, but not longer
/// than kDiagnosisTimeout.
void conclude_if_stopped(Transition& t);
inline constexpr std::chrono::seconds kDiagnosisTimeout{2};
/// Makes the conclusion of a stop wait for Diagnosed.
void diagnosis_pending(Transition& t, const DiagnosisPending& event);
/// Stores the diagnosis, and concludes a stop that waited for it.
void diagnosis(Transition& t, const Diagnosed& event);

// ---- waiting.cpp: why nodes without workers wait

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
/// Returns the hosts of the nodes for which `wanted` holds.
[[nodiscard]] HostList hosts_of(const State& state, bool (*wanted)(const Node&));
/// Returns "n1, n2, n3, n4, n5 and 61 more".
[[nodiscard]] std::string some_of(const HostList& hosts);

// ---- verdicts.cpp: how a job ends, as text

/// Returns "rank 3 on n2 was killed by SIGKILL".
[[nodiscard]] std::string describe(const FailureReport& failure);
/// Returns the verdict of a job in which every worker exited with code 0.
[[nodiscard]] Verdict success_verdict();
/// Returns the verdict on `cause.failure`, which is set. A node that could not start it is an infrastructure failure.
[[nodiscard]] Verdict failure_verdict(const Cause& cause, int max_restarts);
/// Returns the verdict of a job that a departure ends. `stopped`: the group that it stopped; null: none.
[[nodiscard]] Verdict stopped_verdict(const Departure& departure, int nodes_left, const JobShape& shape,
                                      const Group* stopped = nullptr);
/// Returns the verdict of a job that its nodes, its daemon or its store end.
[[nodiscard]] Verdict infrastructure_verdict(std::string reason, std::string hint = "");
/// Returns "node n1 was interrupted by SIGTERM".
[[nodiscard]] std::string describe(const Departure& departure);
/// Returns "rank 0 had already exited with code 0, 0.4 s before": the ranks that had left the group when a peer failed,
/// perhaps because of that. Empty: none had.
[[nodiscard]] std::string finished_before(const State& state);
/// Sends the verdict to every connected node and ends the job. Precondition: no store is open any more.
void finish(Transition& t, Verdict verdict);

}  // namespace ddprun::coordinator
