#include "tests/sim/checker.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/exit_codes.hpp"
#include "rendezvous/coordinator/running.hpp"

namespace ddprun::sim {

using namespace protocol;
using namespace coordinator;
using Action = daemon::DaemonAction;

namespace {

/// Returns whether a worker of this group exited with 75, on a node whose workers have all ended well.
bool any_preempted(const TruthOfNodes& nodes, Generation group) {
    return std::ranges::any_of(nodes.preempted, [&](const auto& entry) { return entry.second == group; });
}

}  // namespace

void Checker::expect(bool holds, const std::string& what) {
    if (!holds && broken_.empty()) broken_ = what;
}

void Checker::after_step(const State& state, const std::vector<Action>& actions, const Truth& truth) {
    expect(state.now >= previous_now_, "time ran backwards");
    if (state.now - previous_now_ > 500ms) awake_since_ = state.now;
    previous_now_ = state.now;
    const bool is_looked_up = ++steps_ % 16 == 0 && state.nodes.size() <= 64;  // the check makes all indexes again
    expect(!is_looked_up || state.nodes.is_consistent(), "a subset of the nodes is not up to date");
    note_losses(state);
    note_reports(state);
    check_stores(actions);
    check_group(state, actions, truth);
    check_budget(state, truth);
    check_pauses(state, actions);
    check_notices(state, actions, truth.notices);
    check_verdict(state, truth);
    check_daemon_end(state, actions, truth);
    check_silence(state);
    check_waiting_is_explained(state, actions);
    check_waiting_makes_sense(state);
}

void Checker::note_losses(const State& state) {
    if (static_cast<std::size_t>(state.nodes.count(Subset::kJoined)) == state.nodes.size()) return;  // none is lost
    for (const auto& [id, node] : state.nodes) {
        if (node.link == Link::kLost && node.busy) lost_with_.emplace(id, *node.busy);
    }
}

/// Every report during a stop counts, whatever began the stop, unless the job ends with that anyway.
void Checker::note_reports(const State& state) {
    if (state.phase != Phase::kStopping || state.cause.verdict) return;
    for (const auto& [rank, worker] : state.group.failed)
        restart_forbidden_ = restart_forbidden_ || worker.status.exit_code() == exit_code::kDoNotRequeue;
}

void Checker::check_stores(const std::vector<Action>& actions) {
    for (const Action& action : actions) {
        if (const auto* open = std::get_if<OpenStore>(&action)) {
            expect(!open_store_ || failed_store_ == open_store_, "two stores are open");
            if (failed_store_ == open->generation) continue;  // tried again
            expect(open->generation == next(newest_store_), "generations do not count up one by one");
            newest_store_ = open->generation;
            open_store_ = open->generation;
        } else if (const auto* close = std::get_if<CloseStore>(&action)) {
            if (open_store_ == close->generation) open_store_.reset();
        }
    }
}

void Checker::check_group(const State& state, const std::vector<Action>& actions, const Truth& truth) {
    std::map<NodeId, Assignment> group;
    for (const Action& action : actions) {
        const auto* send = std::get_if<Send>(&action);
        const auto* assignment = send ? std::get_if<Assignment>(&send->message) : nullptr;
        if (assignment == nullptr) continue;
        expect(!verdict_, "workers are started after the end");
        if (assignment->generation != newest_group_) {
            expect(group.emplace(send->node, *assignment).second, "a node got two assignments");
        } else {  // repeated after a reconnect
            expect(state.group.members.at(send->node).assignment == *assignment, "a repeated assignment differs");
        }
    }
    if (group.empty()) return;
    expect(!restart_forbidden_, "workers are started although one has exited with 93");
    const Generation generation = group.begin()->second.generation;
    expect(generation == newest_store_ && open_store_ == generation, "a group starts without its own open store");
    check_fence(group, generation, truth.of_nodes());
    check_ranks(state, group);
    if (const auto& restart = group.begin()->second.restart) {
        const std::string role = restart->role.empty() ? state.roles.begin()->first : restart->role;
        expect(restart->role.empty() == (state.roles.size() == 1), "a restart names a role although there is one");
        expect(restart->number > restarts_counted_[role], "a restart is counted twice");
        expect(restart->max == state.roles.at(role).max_restarts, "a restart has the budget of another role");
        restarts_counted_[role] = restart->number;
    }
    newest_group_ = generation;
    ++groups_;
    check_rate_of_starts(state.now);
}

/// The pauses between restarts, and between the steps in which a job grows, bound the starts in any time.
void Checker::check_rate_of_starts(TimePoint now) {
    constexpr int kMaxStartsPerMinute = 16;
    while (!starts_.empty() && now - starts_.front() >= 60s) starts_.pop_front();
    starts_.push_back(now);
    most_starts_ = std::max(most_starts_, static_cast<int>(starts_.size()));
    expect(most_starts_ <= kMaxStartsPerMinute, fmt::format("{} groups start within a minute", most_starts_));
}

/// No two live groups: processes of an older one exist only on nodes that are none of this group and were lost with
/// them, and do not run.
void Checker::check_fence(const std::map<NodeId, Assignment>& group, Generation generation, const TruthOfNodes& truth) {
    for (const auto& [id, older] : truth.processes) {
        expect(!group.contains(id),
               fmt::format("{} got generation {} while its workers of {} run", id, number(generation), number(older)));
        expect(truth.frozen.contains(id),
               fmt::format("generation {} starts while {} runs {}", number(generation), id, number(older)));
        expect(lost_with_.contains({id, older}), fmt::format("generation {} starts while {} runs {} and was never lost",
                                                             number(generation), id, number(older)));
    }
}

void Checker::check_ranks(const State& state, const std::map<NodeId, Assignment>& group) {
    const auto nodes = static_cast<int>(group.size());
    expect(nodes >= state.shape->min_nodes && nodes <= state.shape->max_nodes,
           fmt::format("a world of {} nodes", nodes));
    std::map<int, std::pair<NodeId, Assignment>> by_rank;
    for (const auto& [id, assignment] : group) by_rank.emplace(number(assignment.node_rank), std::pair(id, assignment));
    expect(by_rank.size() == group.size(), "two nodes have one rank");
    int next_rank = 0;
    int next_base = 0;
    std::map<std::string, int> role_sizes;
    members_.clear();
    for (const auto& [rank, member] : by_rank) {
        const auto& [id, assignment] = member;
        expect(rank == next_rank++, "node ranks are not dense");
        expect(assignment.rank_base == next_base, "ranks are not dense");
        const Join& join = state.nodes.at(id).join;
        members_[id] = {assignment.rank_base, join.programs};
        next_base += slots_of(join);
        expect(assignment.program_roles.size() == join.programs.size(), "a program has no ranks within its role");
        for (std::size_t i = 0; i < join.programs.size() && broken_.empty(); ++i) {
            int& size = role_sizes[join.programs[i].role];
            expect(assignment.program_roles[i].base == size, "ranks within a role are not dense");
            size += join.programs[i].slots;
        }
        expect(assignment.node_count == nodes && assignment.restart_count == groups_ &&
                   assignment.master_port == by_rank.at(0).second.master_port &&
                   assignment.world_size == by_rank.at(0).second.world_size,
               "members got different worlds");
        const auto before = previous_ranks_.find(id);
        if (before != previous_ranks_.end())
            expect(before->second == rank || before->second >= nodes, "a member does not keep its rank");
    }
    expect(by_rank.at(0).second.world_size == next_base, "the world is not the sum of its nodes");
    for (const auto& [id, assignment] : group) {
        const Join& join = state.nodes.at(id).join;
        for (std::size_t i = 0; i < join.programs.size() && broken_.empty(); ++i)
            expect(assignment.program_roles[i].world_size == role_sizes[join.programs[i].role],
                   "a role is not the sum of its programs");
    }
    previous_ranks_.clear();
    for (const auto& [id, assignment] : group) previous_ranks_[id] = number(assignment.node_rank);
}

void Checker::check_budget(const State& state, const Truth& truth) {
    for (const auto& [role, budget] : state.roles) {
        expect(budget.spent <= budget.max_restarts, "more restarts than allowed");
        const int before = std::exchange(restarts_spent_[role], budget.spent);
        if (budget.spent == before) continue;
        expect(restarts_spent(state) <= truth.of_nodes().failures,
               "a restart was spent though no worker had failed by itself");
        expect(budget.spent == before + 1, "a failure spends one restart");
        const auto& failure = state.cause.failure;
        const bool replaced = !failure && !state.cause.lost.empty();  // by a loss in the same step
        expect(replaced || (failure && role_of(failure->rank) == role),
               "the failure of another role's worker spends a restart");
    }
}

/// Returns the role of a worker of the newest group.
std::string Checker::role_of(Rank rank) const {
    for (const auto& [id, member] : members_) {
        int first = member.rank_base;
        for (const Program& program : member.programs) {
            if (number(rank) >= first && number(rank) < first + program.slots) return program.role;
            first += program.slots;
        }
    }
    return "";
}

/// From the second failure or loss in a row on that comes within 10 s of a start, the next start waits: 0.1 s, doubled
/// each time, 10 s at most (docs/design/002-coordinator.md).
void Checker::check_pauses(const State& state, const std::vector<Action>& actions) {
    if (state.phase != Phase::kStopping) {
        stopping_since_before_ = std::exchange(stopping_since_, std::nullopt);
    } else {
        if (!stopping_since_) stopping_since_ = state.now;
        if (!state.cause.failure) group_failed_at_.reset();  // a lost node was the cause of what seemed a failure
        if (state.cause.failure && !group_failed_at_) group_failed_at_ = state.now;
    }
    for (const Action& action : actions) {  // a step may close the store of one group and open that of the next
        const auto* close = std::get_if<CloseStore>(&action);
        if (close != nullptr && close->generation == newest_group_) note_end_of_group(state);
        if (std::holds_alternative<OpenStore>(action))
            expect(state.now >= may_open_at_, "a group starts within the pause after failures");
    }
    if (state.groups_started > groups_timed_) {
        groups_timed_ = state.groups_started;
        group_began_ = state.now;
        group_failed_at_.reset();
    }
}

void Checker::note_end_of_group(const State& state) {
    const int spent = restarts_spent(state);
    const bool failed = std::exchange(restarts_seen_, spent) != spent;
    const TimePoint stopped_at = stopping_since_before_.value_or(state.now);
    const TimePoint ended_at = failed ? group_failed_at_.value_or(state.now) : stopped_at;
    const bool early = ended_at - group_began_ < 10s;
    if (!early) early_ends_ = 0;
    if (!failed && state.cause.lost.empty()) return;
    if (early) ++early_ends_;
    if (early_ends_ < 2) return;
    may_open_at_ = state.now + std::min<Duration>(10s, 100ms * (1 << std::min(early_ends_ - 2, 10)));
    ++pauses_;
}

void Checker::check_verdict(const State& state, const Truth& truth) {
    expect(!verdict_ || state.verdict == verdict_, "a job ended twice");
    if (verdict_ || !state.verdict) return;
    expect(truth.stop_requested || !open_store_ || state.groups_started == 0 || open_store_ != state.group.generation,
           "the job ended with a store open");
    const Verdict& verdict = *state.verdict;
    const TruthOfNodes nodes = truth.of_nodes();
    verdict_ = verdict;
    verdict_at_ = state.now;
    expect(!verdict.reason.empty(), "a verdict without a reason");
    // Each is spent by the failure of a group, except for the one that ended the job. The nodes get the count,
    // unless one is lost before the next group begins.
    const bool ended_by_workers = verdict.outcome == Outcome::kSucceeded || verdict.outcome == Outcome::kWorkerFailed;
    int counted = 0;
    for (const auto& [role, restarts] : restarts_counted_) counted += restarts;
    expect(verdict.restarts >= counted && verdict.restarts <= groups_ - (ended_by_workers ? 1 : 0) &&
               verdict.restarts <= nodes.failures,
           "the verdict counts other restarts");
    switch (verdict.outcome) {
        case Outcome::kSucceeded:
            expect(verdict.exit_code == 0, "a success with an exit code");
            check_success(nodes);
            expect(!any_preempted(nodes, newest_group_), "a success although a worker exited with 75");
            break;
        case Outcome::kWorkerFailed:
            expect(
                verdict.culprit && verdict.exit_code == verdict.culprit->status.exit_code() && verdict.exit_code != 0,
                "a culprit's code was lost");
            expect(verdict.culprit->role == (state.roles.size() > 1 ? role_of(verdict.culprit->rank) : ""),
                   "a culprit has another role");
            expect(nodes.failures > restarts_spent(state),
                   "a worker is the culprit although none had failed by itself");
            break;
        case Outcome::kStopped:
            expect(truth.signals > 0 && verdict.exit_code == exit_code::kSignalBase + 15, "stopped without a signal");
            break;
        case Outcome::kPreempted: check_preemption(verdict, state.now, truth.notices, nodes); break;
        case Outcome::kInfrastructure: {
            const bool by_breaker =
                verdict.reason.find("of a start, and the job cannot do without") != std::string::npos;
            expect(verdict.exit_code == (by_breaker ? exit_code::kDoNotRequeue : exit_code::kInfrastructure),
                   "wrong code");
            if (verdict.reason.starts_with("no node is left")) check_end_without_nodes(state, nodes);
            break;
        }
    }
}

void Checker::check_success(const TruthOfNodes& nodes) {
    for (const auto& [id, rank] : previous_ranks_) {
        const auto found = nodes.succeeded.find(id);
        expect(found != nodes.succeeded.end() && found->second == newest_group_, id + " has not succeeded");
    }
}

void Checker::check_preemption(const Verdict& verdict, TimePoint now, const TruthOfNotices& notices,
                               const TruthOfNodes& nodes) {
    expect(verdict.exit_code == exit_code::kPreempted, "a preemption with another exit code");
    const auto says = [&](const char* text) { return verdict.reason.find(text) != std::string::npos; };
    if (says("every worker has stopped by itself")) {
        expect(notices.ends_job || notices.by_signal, "preempted without a notice");
        check_success(nodes);
        expect(any_preempted(nodes, newest_group_), "preempted although every worker exited with 0");
    } else if (says("had not ended at the deadline")) {
        expect(notices.deadline && now >= *notices.deadline, "workers are stopped before the deadline of a notice");
    } else {
        expect(says("before a worker ran") || says("before the next start"), "preempted for another reason");
        expect(notices.ends_job, "preempted without an order or a time limit");
    }
}

/// After an order, or before the time limit, no other group starts, and none runs long after the deadline.
void Checker::check_notices(const State& state, const std::vector<Action>& actions, const TruthOfNotices& notices) {
    for (const Action& action : actions) {
        const auto* open = std::get_if<OpenStore>(&action);
        const bool is_new = open != nullptr && failed_store_ != open->generation;
        expect(!is_new || !notices.ends_job, "a group is started after an order to preempt the job, or its time limit");
    }
    if (!notices.deadline || state.phase != Phase::kRunning) return;
    const TimePoint since = std::max({*notices.deadline, group_began_, awake_since_});
    expect(state.now - since <= kDiagnosisTimeout + 2 * kTickInterval, "workers run after the deadline of a notice");
}

/// A job that may be restarted ends without nodes only when those that live have given it up, or do so soon
/// (docs/design/026).
void Checker::check_end_without_nodes(const State& state, const TruthOfNodes& truth) {
    const bool restarts = std::ranges::all_of(state.roles, [](const auto& role) { return role.second.is_left(); });
    if (!restarts || !state.no_more_nodes.empty()) return;
    for (const NodeId& id : truth.looking) {
        const auto node = state.nodes.find(id);
        const bool is_out = node != state.nodes.end() && (node->second.overdue_since || node->second.leaving);
        expect(is_out, fmt::format("the job ends without nodes although {} looks for it", id));
    }
}

/// No node is waited for longer than `hold`, and the grace of a connection that breaks then (docs/design/026).
void Checker::check_silence(const State& state) {
    if (state.phase == Phase::kFinished || state.now - silence_checked_ < 500ms) return;
    silence_checked_ = state.now;
    for (const auto& [id, node] : state.nodes) {
        if (node.link == Link::kLost) continue;
        expect(state.now - std::max(node.heard_at, awake_since_) <=
                   state.config.hold + state.config.reconnect_grace + 500ms,
               id + " is silent for longer than hold, and not lost");
    }
}

/// The daemon ends with a verdict when every node that can be reached has it, without one only when it was alone for
/// the linger time, and at once when it is signaled.
void Checker::check_daemon_end(const State& state, const std::vector<Action>& actions, const Truth& truth) {
    const bool joined = std::ranges::any_of(actions, [](const Action& action) {  // perhaps not connected any more
        const auto* send = std::get_if<Send>(&action);
        return send != nullptr && std::holds_alternative<Welcome>(send->message);
    });
    if (truth.connected > 0 || joined || !last_connected_) last_connected_ = state.now;
    const bool alone = state.now - *last_connected_ >= state.config.linger;
    const auto missed = [&](const auto& entry) {
        const Node& node = entry.second;
        const bool may_dial = node.broken && state.now < node.heard_at + kHoldsOfSearch * state.config.hold &&
                              state.now - verdict_at_ < state.config.lost_after;
        return node.link != Link::kConnected && !node.leaving && node.vanished_at <= verdict_at_ &&
               (may_dial || state.now - node.vanished_at < state.config.reconnect_grace);
    };
    for (const Action& action : actions) {
        const auto* end = std::get_if<EndDaemon>(&action);
        if (end == nullptr) continue;
        expect(!daemon_end_, "the daemon ends twice");
        daemon_end_ = end->exit_code;
        if (truth.stop_requested) {
            const bool ends_job = verdict_ && verdict_->reason.starts_with("the job was interrupted by");
            expect(end->exit_code == (ends_job ? exit_code::kSignalBase + 15 : exit_code::kSuccess) && verdict_,
                   "a stopped daemon ends with another code, or without a verdict");
        } else if (verdict_) {
            expect(end->exit_code == exit_code::kSuccess, "a daemon that has given its verdict ends with another code");
            expect(std::ranges::none_of(state.nodes, missed), "the daemon ends before a node has the verdict");
        } else {
            const bool in_vain = state.starter_ended && !state.shape;  // a signal ended ddprun while it started
            expect(end->exit_code == exit_code::kInfrastructure && (alone || in_vain), "the daemon leaves its agents");
            expect(truth.of_nodes().looking.empty(), "the daemon ends while nodes look for it");
        }
    }
    const Duration slack = 2 * kTickInterval;
    // Nodes that are cut off may come back, but not the one on the daemon's host whose end its starter's end shows.
    const bool has_lost_its_node = state.starter_ended && std::ranges::all_of(state.nodes, [](const auto& entry) {
                                       return entry.second.beside_daemon;
                                   });
    if (!state.starter_ended) starter_seen_ = state.now;  // its end begins the wait again
    const Duration deserted =
        has_lost_its_node ? state.config.linger : std::max(state.config.linger, kHoldsOfSearch * state.config.hold);
    expect(daemon_end_ || verdict_ ||
               state.now - std::max({*last_connected_, starter_seen_, awake_since_}) <= deserted + slack,
           "the daemon stays without agents");
    expect(daemon_end_ || !verdict_ ||
               state.now - std::max(verdict_at_, awake_since_) <=
                   std::max(state.config.reconnect_grace, state.config.lost_after) + slack,
           "the daemon stays after the verdict");
}

void Checker::check_waiting_is_explained(const State& state, const std::vector<Action>& actions) {
    for (const Action& action : actions) {
        const auto* send = std::get_if<Send>(&action);
        if (send != nullptr && std::holds_alternative<Waiting>(send->message)) explained_at_[send->node] = state.now;
    }
    if (state.phase == Phase::kOpening || state.phase == Phase::kFinished) return;
    if (state.now - explanations_checked_ < kTickInterval) return;  // it takes time where there are many nodes
    explanations_checked_ = state.now;
    for (const auto& [id, node] : state.nodes) {
        const bool parked = state.phase == Phase::kRunning && state.group.members.contains(id);
        if (node.link != Link::kConnected || node.busy || node.leaving || parked) {
            explained_at_[id] = state.now;  // it begins to wait later
            continue;
        }
        const TimePoint since = std::max({node.idle_since, explained_at_[id], awake_since_});
        expect(state.now - since < 6s, fmt::format("{} waits without an explanation", id));
    }
}

/// A job waits for a replacement of a lost node only if it may restart the workers when that joins: each role of the
/// node has a restart left.
void Checker::check_waiting_makes_sense(const State& state) {
    if (state.phase != Phase::kGathering || state.groups_started == 0) return;
    const auto present = std::ranges::count_if(
        state.nodes, [](const auto& entry) { return entry.second.link != Link::kLost && !entry.second.leaving; });
    if (present >= state.shape->min_nodes) return;
    expect(state.no_more_nodes.empty(), "the job waits for another node though none will join");
    for (const auto& [id, member] : members_) {
        const auto node = state.nodes.find(id);
        if (node != state.nodes.end() && node->second.link != Link::kLost) continue;
        for (const Program& program : member.programs)
            expect(state.roles.at(program.role).is_left(),
                   "the job waits for another node though it may not be restarted");
    }
}

}  // namespace ddprun::sim
