#include "rendezvous/coordinator/running.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>

#include "common/text/words.hpp"
#include "rendezvous/coordinator/ending.hpp"
#include "rendezvous/coordinator/gathering.hpp"
#include "rendezvous/coordinator/growth.hpp"
#include "rendezvous/coordinator/hosts.hpp"
#include "rendezvous/coordinator/nodes.hpp"
#include "rendezvous/coordinator/preemption.hpp"
#include "rendezvous/coordinator/verdicts.hpp"
#include "rendezvous/diagnosis/cause.hpp"

namespace ddprun::coordinator {
namespace {

void abort_members(Transition& t) {
    const State& state = t.state;
    for (const auto& [id, member] : state.group.members) {
        const auto node = state.nodes.find(id);
        if (node == state.nodes.end() || node->second.link != Link::kConnected) continue;  // sent when it reconnects
        if (node->second.busy == state.group.generation) t.send(id, abort_for_cause(state, state.group.generation));
    }
}

/// A failure that began up to this long after the report of another one may still be its cause: an agent needs time to
/// notice the end of a process, and to report it.
constexpr std::chrono::seconds kCauseWindow{1};

/// A diagnosis counts for a worker that fails within this time: the worker may handle the error of its operation first.
constexpr std::chrono::seconds kDiagnosisValidFor{30};

/// A group that ends sooner than this after its start has ended early, like the one before it perhaps.
constexpr std::chrono::seconds kEarly{10};
constexpr std::chrono::milliseconds kFirstPauseBetweenRestarts{100};
constexpr std::chrono::milliseconds kMaxPauseBetweenRestarts{10'000};

/// Returns the pause before the restart that follows a number of early ends in a row. None follows the first, which may
/// be an accident. Later ones have a cause that lasts, such as a file system that is away, and must not use up all
/// restarts at once.
std::chrono::milliseconds pause_after(int early_ends) {
    std::chrono::milliseconds pause{0};
    for (int i = 1; i < early_ends && pause < kMaxPauseBetweenRestarts; ++i)
        pause = std::max(kFirstPauseBetweenRestarts, 2 * pause);
    return std::min(pause, kMaxPauseBetweenRestarts);
}

/// Closes the group's store, which the next group must not reach, and enters kGathering. No worker runs any more.
void close_store(Transition& t) {
    t.actions.push_back(CloseStore{t.state.group.generation});
    t.state.phase = Phase::kGathering;
}

bool all_succeeded(const Group& group) {
    return std::ranges::all_of(group.members, [](const auto& entry) { return entry.second.succeeded; });
}

/// Returns the verdict of a job whose workers have all ended well.
Verdict verdict_of_success(const State& state) {
    const bool preempted =
        std::ranges::any_of(state.group.members, [](const auto& entry) { return entry.second.preempted; });
    return preempted ? stopped_at_notice_verdict(state) : success_verdict();
}

void release_leaving_nodes(Transition& t) {
    std::vector<NodeId> ids;
    for (const auto& [id, node] : t.state.nodes) {
        if (node.leaving && !node.busy && node.link == Link::kConnected) ids.push_back(id);
    }
    for (const NodeId& id : ids) release(t, id);
}

void add_diagnosis(Verdict& verdict, const Diagnosis& diagnosis) {
    verdict.diagnosis = diagnosis.text;
    verdict.names_activity = diagnosis.names_activity;
    verdict.hint = diagnosis.hint;
    const int failed = number(verdict.culprit->rank);
    verdict.first_victim = !forbids_restart(*verdict.culprit) && !diagnosis.culprits.empty() &&
                           !std::ranges::count(diagnosis.culprits, failed);
}

/// Spends a restart of the role whose failure is being handled.
void spend_restart(Transition& t) {
    State& state = t.state;
    const std::string& role = state.cause.failure->role;
    RestartBudget& budget = state.roles.at(role);
    ++budget.spent;
    t.say(fmt::format("restart {} of {}{}", budget.spent, budget.max_restarts, of_role(state, role)));
}

void conclude(Transition& t) {
    State& state = t.state;
    close_store(t);
    Cause& cause = state.cause;
    // If every worker had just finished when the stop came, the job has succeeded.
    if (!cause.failure && all_succeeded(state.group)) return finish(t, verdict_of_success(state));
    if (cause.verdict) return finish(t, *cause.verdict);
    // Stopping the workers may take long, so the time before that counts.
    const Duration lasted = cause.failure ? cause.failed_after : state.group.stopping_since - state.group.started_at;
    const bool by_accident = cause.failure || !cause.lost.empty();
    if (lasted >= kEarly) state.early_ends = 0;
    if (lasted < kEarly && by_accident) ++state.early_ends;
    if (cause.failure) {
        const Diagnosis& diagnosis = state.group.diagnosis;
        // A cut link explains only a failure whose own inquiry has found it: a program fails beside one, too.
        const Duration valid_for = diagnosis.links.empty() ? Duration(kDiagnosisValidFor) : Duration::zero();
        const bool of_this = state.group.diagnosed_at + valid_for >= cause.failed_at &&
                             (!diagnosis.dead || *diagnosis.dead == cause.failure->rank);
        const bool by_link = of_this && !diagnosis.links.empty() && !is_violent(cause.failure->status) &&
                             !forbids_restart(*cause.failure);
        if (failure_ends_job(state)) {
            Verdict verdict = by_link ? link_verdict(state, why_no_restart(state)) : failure_verdict(state);
            verdict.also_failed = also_failed(state.group.failed, cause.failure->rank);
            if (of_this && !by_link) add_diagnosis(verdict, diagnosis);
            return finish(t, std::move(verdict));
        }
        const std::string& text = diagnosis.dead ? diagnosis.detail : diagnosis.text;
        if (by_link)
            cause.reason = text;
        else if (of_this && !text.empty())
            cause.reason += fmt::format("; {}", text);
        if (ends_instead_of_starting(state)) return finish(t, preempted_verdict(state));
        if (by_link)
            strike_end_of(state, diagnosis.links);
        else
            strike(state, cause.failure->host);
        if (!departure_ends_job(state)) spend_restart(t);
    }
    if (!cause.failure && cause.lost.empty() && !state.group.lost.empty()) {
        std::vector<std::string> lost;
        for (const auto& [host, by_network] : state.group.lost) lost.push_back(host);
        cause.reason += fmt::format("; {} {} {} lost meanwhile", inflect(lost.size(), "node", "nodes"), list_of(lost),
                                    inflect(lost.size(), "was", "were"));
    }
    if (const std::string host = count_losses(t, lasted); !host.empty())
        return finish(t, useless_restarts_verdict(state, host));
    if (state.early_outages >= kMaxEarlyOutages) return finish(t, outages_verdict(state));
    if (by_accident) state.round.opens_at = std::max(state.round.opens_at, state.now + pause_after(state.early_ends));
    release_leaving_nodes(t);
    state.round.since = state.now;
    state.round.last_call_ends.reset();
    state.round.newest_join.reset();
    gather(t);
}

LocalRank local_rank_of(const State& state, const NodeId& member, Rank rank) {
    return LocalRank{number(rank) - state.group.members.at(member).assignment.rank_base};
}

bool is_of(const State& state, const NodeId& member, Rank rank) {
    const int local = number(local_rank_of(state, member, rank));
    return local >= 0 && local < slots_of(state.nodes.at(member).join);
}

/// Returns the failure of a worker of this member with the worker's role.
FailureReport with_role(const State& state, const NodeId& member, FailureReport failure) {
    failure.role = program_of(state.nodes.at(member).join, local_rank_of(state, member, failure.rank)).role;
    return failure;
}

void note_failure_time(const State& state, Cause& cause) {
    cause.failed_at = state.now;
    cause.failed_after = state.now - state.group.started_at;
}

/// Returns whether `later` replaces the cause so far: it caused that failure, or forbids the restart. A failing process
/// loses its connections before it ends and before its agent notices: a peer may fail because of that, and be reported,
/// first.
bool replaces_the_cause(const State& state, const FailureReport& later) {
    const Cause& cause = state.cause;
    if (state.phase != Phase::kStopping || cause.verdict) return false;
    if (cause.failure && forbids_restart(*cause.failure)) return false;
    if (forbids_restart(later)) return true;  // the program's own statement
    if (!cause.failure) return false;
    const TimePoint began = state.now - later.failing_for;
    return began <= cause.failed_at + kCauseWindow &&
           diagnosis::explains({later, began}, {*cause.failure, cause.failure_began});
}

}  // namespace

Cause because(std::string reason) {
    Cause cause;
    cause.reason = std::move(reason);
    return cause;
}

Abort abort_for_cause(const State& state, Generation generation) {
    const auto& failure = state.cause.failure;
    // Schedulers signal every process of a job: such an end is no failure if the agents are signaled, too.
    const bool stopped = failure && failure->status.kind == ExitStatus::Kind::kSignaled &&
                         (failure->status.number == SIGTERM || failure->status.number == SIGINT);
    const TimePoint began = failure ? state.cause.failure_began : state.cause.began.value_or(state.now);
    return {generation, state.cause.reason, state.cause.signal, failure && !stopped,
            std::chrono::duration_cast<std::chrono::milliseconds>(state.now - began)};
}

std::optional<std::string> role_without_restart(const State& state, bool (*is_missing)(const Node&)) {
    bool any_missing = !state.group.left_roles.empty();
    for (const std::string& role : state.group.left_roles)
        if (!state.roles.at(role).is_left()) return role;
    for (const auto& [id, node] : state.nodes) {
        if (!node.last_rank || !is_missing(node)) continue;
        any_missing = true;
        for (const Program& program : node.join.programs)
            if (!state.roles.at(program.role).is_left()) return program.role;
    }
    for (const auto& [role, budget] : state.roles)
        if (!any_missing && !budget.is_left()) return role;
    return std::nullopt;
}

bool failure_ends_job(const State& state) {
    const auto& failure = state.cause.failure;
    return failure && (!state.roles.at(failure->role).is_left() || forbids_restart(*failure));
}

bool may_end_the_job(const State& state) {
    return state.phase == Phase::kStopping && (state.cause.verdict || state.cause.failure);
}

void worker_failed(Transition& t, const NodeId& id, const WorkerFailed& message) {
    State& state = t.state;
    const Node& node = state.nodes.at(id);
    const bool of_this_group = message.generation == state.group.generation && node.busy == message.generation;
    if (of_this_group && !is_of(state, id, message.failure.rank)) {
        return t.note(fmt::format("ignored: {} reports the failure of rank {}, which is not its own",
                                  name_node(node.join.host), number(message.failure.rank)));
    }
    if (of_this_group && message.failure.pid != 0)  // else it was not started
        state.group.failed.insert_or_assign(
            message.failure.rank,
            FailedWorker{message.failure.status, message.failure.oom, diagnosis::lost_a_peer(message.failure)});
    if (of_this_group && replaces_the_cause(state, message.failure)) {
        t.say(fmt::format("{}, which {}: {}", describe(message.failure),
                          forbids_restart(message.failure) ? "forbids a restart after" : "explains",
                          state.cause.reason));
        if (!state.cause.failure) note_failure_time(state, state.cause);
        state.cause.lost.clear();
        state.cause.failure = with_role(state, id, message.failure);
        state.cause.failed_node = id;
        state.cause.failure_began = state.now - message.failure.failing_for;
        return change_reason(t, describe(message.failure));
    }
    if (!of_this_group || state.phase != Phase::kRunning) {
        t.note(fmt::format("ignored, because the group is already stopping or has ended: {} (generation {})",
                           describe(message.failure), number(message.generation)));
        return;
    }
    Cause cause = because(describe(message.failure));
    // A worker whose peer has finished too early fails in its next operation with that peer.
    const std::string early = is_violent(message.failure.status) ? "" : finished_before(state);
    if (!early.empty()) cause.reason += fmt::format("; {}", early);
    cause.failure = with_role(state, id, message.failure);
    cause.failed_node = id;
    note_failure_time(state, cause);
    cause.failure_began = state.now - message.failure.failing_for;
    stop_group(t, std::move(cause));
}

void worker_finished(Transition& t, const NodeId& id, const WorkerFinished& message) {
    Group& group = t.state.group;
    const auto member = group.members.find(id);
    if (message.generation != group.generation || member == group.members.end()) return;
    if (t.state.nodes.at(id).busy != message.generation) return;  // repeated after a reconnect: its node has ended
    if (!is_of(t.state, id, message.rank)) return;
    group.finished.emplace(message.rank, t.state.now);
    group.is_ending = true;
}

void stop_group(Transition& t, Cause cause) {
    State& state = t.state;
    state.phase = Phase::kStopping;
    if (state.now - state.group.started_at >= kSettled) state.growth.restarts = 0;
    state.group.stopping_since = state.now;
    state.cause = std::move(cause);
    t.say(fmt::format("stopping generation {}: {}", number(state.group.generation), state.cause.reason));
    abort_members(t);
    conclude_if_stopped(t);
}

void group_ended(Transition& t, const NodeId& id, Generation generation, bool succeeded, bool preempted) {
    State& state = t.state;
    const Node& node = state.nodes.at(id);
    if (node.busy != generation) {
        t.note(
            fmt::format("ignored: {} has no workers of generation {}", name_node(node.join.host), number(generation)));
        return;
    }
    const std::string host = node.join.host;
    state.nodes.change(id, [&](Node& idle) {
        idle.busy.reset();
        idle.given_up = false;
        idle.overdue_since.reset();
        idle.idle_since = state.now;
    });
    t.note(fmt::format("the workers of {} {}", name_node(host), succeeded ? "have succeeded" : "are stopped"));
    const bool of_this_group = generation == state.group.generation;
    if (of_this_group && succeeded) {
        state.group.is_ending = true;
        state.group.members.at(id).succeeded = true;
        state.group.members.at(id).preempted = preempted && state.preemption;
        state.group.members.at(id).succeeded_at = state.now;
        std::erase_if(state.group.finished, [&](const auto& entry) { return is_of(state, id, entry.first); });
    }
    if (node.leaving && !may_end_the_job(state)) release(t, id);

    if (state.phase == Phase::kStopping) return conclude_if_stopped(t);
    if (!of_this_group || state.phase != Phase::kRunning) {
        return available(t);
    }
    if (!succeeded) {  // it was cut off for a while, and stopped its workers by itself
        return stop_group(t, because(fmt::format("{} stopped its workers", name_node(host))));
    }
    if (!all_succeeded(state.group)) return agree_on_stop(t);
    close_store(t);
    finish(t, verdict_of_success(state));
}

void reconsider_cause(Transition& t, TimePoint left_at, Cause other) {
    Cause& cause = t.state.cause;
    if (!cause.failure || forbids_restart(*cause.failure)) return;
    if (left_at > cause.failed_at + kCauseWindow) return;
    t.say(fmt::format("that is the cause of: {}", cause.reason));
    cause = std::move(other);
    abort_members(t);
}

void change_reason(Transition& t, std::string reason) {
    t.state.cause.reason = std::move(reason);
    abort_members(t);
}

void conclude_if_stopped(Transition& t) {
    const State& state = t.state;
    const bool workers_remain = std::ranges::any_of(state.nodes.of(Subset::kBusy), [&](const NodeName& node) {
        return state.nodes.at(node.id).busy == state.group.generation;
    });
    const auto& since = state.group.diagnosis_pending_since;
    const bool diagnosis_known = !state.cause.failure || !since || state.now >= *since + kDiagnosisTimeout;
    if (!workers_remain && diagnosis_known) conclude(t);
}

void diagnosis_pending(Transition& t, const DiagnosisPending& event) {
    Group& group = t.state.group;
    if (event.generation == group.generation) group.diagnosis_pending_since = t.state.now;
}

void diagnosis(Transition& t, const Diagnosed& event) {
    Group& group = t.state.group;
    if (event.generation != group.generation) return;
    group.diagnosis_pending_since.reset();
    if (!event.diagnosis.text.empty()) {  // else the diagnosis before may still hold
        group.diagnosed_at = t.state.now;
        group.diagnosis = event.diagnosis;
        t.say(event.diagnosis.text);
    }
    if (t.state.phase == Phase::kStopping) conclude_if_stopped(t);
}

}  // namespace ddprun::coordinator
