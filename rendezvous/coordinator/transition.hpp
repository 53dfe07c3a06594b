#pragma once
// One step in the making, and the rules that it is made of, by subject. Private to the coordinator: others call step().
// A rule changes the state, appends actions in the order in which they must happen, and says in a few words why.

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

inline constexpr std::size_t kMaxNodes = 16'384;     ///< that may be joined at once, spares included
inline constexpr std::size_t kMaxLostNodes = 1'024;  ///< that are remembered in case they come back
inline constexpr int kMaxSlots = 4'096;              ///< workers on a node; kMaxNodes of them still count in an int
inline constexpr std::size_t kMaxNameBytes = 255;    ///< of a node id, host name or run id

// ---- nodes.cpp: coming, going, and the questions asked about them

/// It is here, or may be back in a moment, and was not told to end.
[[nodiscard]] bool present(const Node& node);
/// It can be given workers now.
[[nodiscard]] bool eligible(const Node& node);
[[nodiscard]] int count_present(const State& state);
[[nodiscard]] int count_eligible(const State& state);
[[nodiscard]] std::vector<NodeId> eligible_nodes(const State& state);

void join(Transition& t, const NodeId& id, const Join& message);
void disconnected(Transition& t, const NodeId& id);
void leave(Transition& t, const NodeId& id, int signal);
/// Lets a leaving node without processes go.
void release(Transition& t, const NodeId& id);
/// Nodes whose silence or reconnect grace has lasted too long are lost.
void lose_overdue_nodes(Transition& t);

// ---- admission.cpp

/// Why this Join cannot be served, or empty.
[[nodiscard]] std::string refusal(const State& state, const NodeId& id, const Join& join);

// ---- gathering.cpp: from waiting nodes to a worker group

/// In kGathering: closes the round, waits on, or ends the job. To be called whenever a node or the time has changed.
void gather(Transition& t);
/// `id` has no processes and may take part: the one place that lets a running group grow.
void available(Transition& t, const NodeId& id);
void store_opened(Transition& t, const StoreOpened& event);
void store_failed(Transition& t, const StoreFailed& event);

// ---- running.cpp: a worker group, its end, and what follows

[[nodiscard]] Cause because(std::string reason);
[[nodiscard]] bool restart_is_left(const State& state);
/// A verdict may come out of this stop, and then a leaving node is to hear that one too.
[[nodiscard]] bool may_end_the_job(const State& state);
void worker_failed(Transition& t, const NodeId& id, const WorkerFailed& message);
void worker_finished(Transition& t, const NodeId& id, const WorkerFinished& message);
void group_ended(Transition& t, const NodeId& id, Generation generation, bool succeeded);
/// kRunning → kStopping, or further when nothing runs.
void stop_group(Transition& t, Cause cause);
/// The group is being stopped for another reason than its members were told: tells those that are still stopping.
void change_reason(Transition& t, std::string reason);
/// A member of the group that is being stopped is gone since `went_at`. If another member's worker failed at about that
/// time, then because of it: when a node ends, workers elsewhere lose their connections to it and fail, and their
/// agents may report that before the end of the node itself is seen.
void reconsider_cause(Transition& t, TimePoint went_at, const std::string& reason);
/// A failure is not concluded before it is judged, if it is going to be; not for longer than kJudgePatience.
void conclude_if_stopped(Transition& t);
inline constexpr std::chrono::seconds kJudgePatience{2};
void judging(Transition& t, const Judging& event);
void judged(Transition& t, const Judged& event);

// ---- waiting.cpp: what nodes without workers are told

/// Tells them when it has changed, and every few seconds.
void tell_waiting_nodes(Transition& t);
/// Tells one, at once.
void tell_waiting_node(Transition& t, const NodeId& id);
/// Hosts in natural order: the first kMaxHostsTold of them, and how many there are.
struct HostList {
    std::vector<std::string> first;
    std::size_t total = 0;
};
inline constexpr std::size_t kMaxHostsTold = 64;
/// Of those nodes for which `wanted` holds.
[[nodiscard]] HostList hosts_of(const State& state, bool (*wanted)(const Node&));
/// "n1, n2, n3, n4, n5 and 61 more"
[[nodiscard]] std::string some_of(const HostList& hosts);

// ---- verdicts.cpp: how a job ends, in words

/// "rank 3 on n2 was killed by SIGKILL"
[[nodiscard]] std::string describe(const FailureReport& failure);
[[nodiscard]] Verdict success_verdict();
/// `cause.failure` is set. What could not be started for a reason of the node's own is no failure of the program.
[[nodiscard]] Verdict failure_verdict(const Cause& cause, int max_restarts);
/// `stopped`: the group whose workers were stopped for it; null: there was none.
[[nodiscard]] Verdict stopped_verdict(const Departure& departure, int nodes_left, const JobShape& shape,
                                      const Group* stopped = nullptr);
[[nodiscard]] Verdict infrastructure_verdict(std::string reason);
/// "node n1 was interrupted by SIGTERM"
[[nodiscard]] std::string describe(const Departure& departure);
/// "rank 0 had already exited with code 0, 0.4 s before": who had left the group when a peer failed, perhaps of that.
/// Empty when nobody had.
[[nodiscard]] std::string finished_before(const State& state);
/// "1.5 s"
[[nodiscard]] std::string seconds(std::chrono::milliseconds duration);
/// Tells everybody and ends the job; no store is open any more.
void finish(Transition& t, Verdict verdict);

}  // namespace ddprun::coordinator
