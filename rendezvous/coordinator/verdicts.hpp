#pragma once
// The verdicts, and how a job ends as text. Pure; private to the coordinator.

#include <string>
#include <string_view>

#include "rendezvous/coordinator/state.hpp"

namespace ddprun::coordinator {

/// Returns "rank 3 on n2 was killed by SIGKILL".
[[nodiscard]] std::string describe(const FailureReport& failure);
/// Returns whether the worker has exited with the code for "another attempt is useless".
[[nodiscard]] bool forbids_restart(const FailureReport& failure);
/// Returns the ranks that failed by themselves, without the culprit, by the way in which they ended.
[[nodiscard]] std::vector<FailedRanks> also_failed(const std::map<Rank, FailedWorker>& failed, Rank culprit);
/// Returns the verdict of a job in which every worker exited with code 0.
[[nodiscard]] Verdict success_verdict();
/// Returns the verdict of a job whose workers have ended because of a notice of preemption.
[[nodiscard]] Verdict stopped_at_notice_verdict(const State& state);
/// Returns the verdict of a preempted job that would start its workers, for the first time or again.
[[nodiscard]] Verdict preempted_verdict(const State& state);
/// Returns the verdict of a preempted job in which these ranks have not ended in time.
[[nodiscard]] Verdict overdue_verdict(const State& state, const std::vector<int>& ranks);
/// Returns why the failure that stopped the group, which is set, ends the job: "no restart left (--max-restarts 3)".
/// Empty: the job asked for no restarts.
[[nodiscard]] std::string why_no_restart(const State& state);
/// Returns the verdict on the failure that stopped the group, which is set. A node that could not start the worker is
/// an infrastructure failure.
[[nodiscard]] Verdict failure_verdict(const State& state);
/// Returns the verdict of a job that a departure ends. `stopped`: the group that it stopped; null: none.
[[nodiscard]] Verdict stopped_verdict(const Departure& departure, int nodes_left, const JobShape& shape,
                                      const Group* stopped = nullptr);
/// Returns the verdict of a job whose daemon is ended by a signal.
[[nodiscard]] Verdict daemon_stopped_verdict(int signal);
/// Returns the verdict of a job whose network has cut off many nodes soon after each of the newest starts.
[[nodiscard]] Verdict outages_verdict(const State& state);
/// Returns the verdict on the failure that stopped the group, which is set, if a cut link between its nodes explains
/// it: an infrastructure failure. `why`: as why_no_restart().
[[nodiscard]] Verdict link_verdict(const State& state, std::string_view why);
/// Returns the verdict of a job that its nodes, its daemon or its store end.
[[nodiscard]] Verdict infrastructure_verdict(std::string reason, std::string hint = "");
/// Returns the verdict of a job that cannot do without `host`, which ends every group soon after its start.
[[nodiscard]] Verdict useless_restarts_verdict(const State& state, const std::string& host);
/// Returns "node n1 was interrupted by SIGTERM".
[[nodiscard]] std::string describe(const Departure& departure);
/// Returns "rank 0 had already exited with code 0, 0.4 s before": names the ranks that had exited before a peer failed.
/// Their exit may be the reason why it failed. Empty: none had.
[[nodiscard]] std::string finished_before(const State& state);

}  // namespace ddprun::coordinator
