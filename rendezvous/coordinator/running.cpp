#include <fmt/format.h>

#include <algorithm>

#include "rendezvous/coordinator/blame.hpp"
#include "rendezvous/coordinator/transition.hpp"

namespace ddprun::coordinator {
namespace {

void tell_members_to_stop(Transition& t) {
    const State& state = t.state;
    for (const auto& [id, member] : state.group.members) {
        const auto node = state.nodes.find(id);
        if (node == state.nodes.end() || node->second.link != Link::kConnected) continue;  // told when it comes back
        if (node->second.busy == state.group.generation) t.send(id, Abort{state.group.generation, state.cause.reason});
    }
}

/// How much later than the report of its consequence a failure may begin: a report takes its time, and so does an agent
/// that notices the end of a process.
constexpr std::chrono::seconds kBlameWindow{1};

/// So long before a worker fails it may have missed the deadline that it fails of.
constexpr std::chrono::seconds kJudgedBefore{30};

/// Nothing runs any more; whatever comes next, the store of the group must not be reachable then.
void close_store(Transition& t) {
    t.actions.push_back(CloseStore{t.state.group.generation});
    t.state.phase = Phase::kGathering;
}

bool all_succeeded(const Group& group) {
    return std::ranges::all_of(group.members, [](const auto& entry) { return entry.second.succeeded; });
}

void release_leaving_nodes(Transition& t) {
    std::vector<NodeId> ids;
    for (const auto& [id, node] : t.state.nodes) {
        if (node.leaving && !node.busy && node.link == Link::kConnected) ids.push_back(id);
    }
    for (const NodeId& id : ids) release(t, id);
}

void take_judgement(Verdict& verdict, const Group& group) {
    verdict.judged = group.judged;
    verdict.hint = group.judged_hint;
    const int failed = number(verdict.culprit->rank);
    verdict.bystander = !group.judged_blamed.empty() && !std::ranges::count(group.judged_blamed, failed);
}

void conclude(Transition& t) {
    State& state = t.state;
    close_store(t);
    Cause& cause = state.cause;
    // Told to stop when all had just finished: then they have finished.
    if (!cause.failure && all_succeeded(state.group)) return finish(t, success_verdict());
    if (cause.verdict) return finish(t, *cause.verdict);
    if (cause.failure) {
        const Group& group = state.group;
        const bool of_this = group.judged_at + kJudgedBefore >= cause.failed_at &&
                             (!group.judged_dead || *group.judged_dead == cause.failure->rank);
        if (!restart_is_left(state)) {
            Verdict verdict = failure_verdict(cause, state.shape->max_restarts);
            if (of_this) take_judgement(verdict, group);
            return finish(t, std::move(verdict));
        }
        const std::string& judged = group.judged_dead ? group.judged_detail : group.judged;
        if (of_this && !judged.empty()) cause.reason += fmt::format("; {}", judged);
        ++state.restarts_spent;
        t.say(fmt::format("restart {} of {}", state.restarts_spent, state.shape->max_restarts));
    }
    release_leaving_nodes(t);
    state.gathering_since = state.now;
    state.last_call_ends.reset();
    gather(t);
}

bool is_of(const State& state, const NodeId& member, Rank rank) {
    const int local = number(rank) - state.group.members.at(member).assignment.rank_base;
    return local >= 0 && local < state.nodes.at(member).join.slots;
}

/// Whether this is the failure that the one blamed so far came from. A process that fails loses its connections before
/// it has ended and its agent can notice: a peer may fail of that, and be reported, first.
bool explains_the_cause(const State& state, const FailureReport& later) {
    const Cause& cause = state.cause;
    const TimePoint began = state.now - later.failing_for;
    return state.phase == Phase::kStopping && cause.failure && began <= cause.failed_at + kBlameWindow &&
           explains({later, began}, {*cause.failure, cause.failure_began});
}

}  // namespace

Cause because(std::string reason) {
    Cause cause;
    cause.reason = std::move(reason);
    return cause;
}

bool restart_is_left(const State& state) { return state.restarts_spent < state.shape->max_restarts; }

bool may_end_the_job(const State& state) {
    return state.phase == Phase::kStopping && (state.cause.verdict || state.cause.failure);
}

void worker_failed(Transition& t, const NodeId& id, const WorkerFailed& message) {
    State& state = t.state;
    const Node& node = state.nodes.at(id);
    const bool of_this_group = message.generation == state.group.generation && node.busy == message.generation;
    if (of_this_group && !is_of(state, id, message.failure.rank)) {
        return t.say(fmt::format("ignored: node {} reports the failure of rank {}, which is not its own",
                                 node.join.host, number(message.failure.rank)));
    }
    if (of_this_group && explains_the_cause(state, message.failure)) {
        t.say(fmt::format("{}, which explains: {}", describe(message.failure), state.cause.reason));
        state.cause.failure = message.failure;
        state.cause.failed_node = id;
        state.cause.failure_began = state.now - message.failure.failing_for;
        return change_reason(t, describe(message.failure));
    }
    if (!of_this_group || state.phase != Phase::kRunning) {
        t.say(fmt::format("not the cause of anything: {} (generation {})", describe(message.failure),
                          number(message.generation)));
        return;
    }
    Cause cause = because(describe(message.failure));
    // A worker whose peer has finished too early fails of it, in whatever it does with its peers next.
    const std::string early = is_violent(message.failure.status) ? "" : finished_before(state);
    if (!early.empty()) cause.reason += fmt::format("; {}", early);
    cause.failure = message.failure;
    cause.failed_node = id;
    cause.failed_at = state.now;
    cause.failure_began = state.now - message.failure.failing_for;
    stop_group(t, std::move(cause));
}

void worker_finished(Transition& t, const NodeId& id, const WorkerFinished& message) {
    Group& group = t.state.group;
    const auto member = group.members.find(id);
    if (message.generation != group.generation || member == group.members.end()) return;
    if (t.state.nodes.at(id).busy != message.generation) return;  // repeated after a reconnect: its node has ended
    if (is_of(t.state, id, message.rank)) group.finished.emplace(message.rank, t.state.now);
}

void stop_group(Transition& t, Cause cause) {
    State& state = t.state;
    state.phase = Phase::kStopping;
    state.cause = std::move(cause);
    t.say(fmt::format("stopping generation {}: {}", number(state.group.generation), state.cause.reason));
    tell_members_to_stop(t);
    conclude_if_stopped(t);
}

void group_ended(Transition& t, const NodeId& id, Generation generation, bool succeeded) {
    State& state = t.state;
    Node& node = state.nodes.at(id);
    if (node.busy != generation) {
        t.say(fmt::format("ignored: node {} has no workers of generation {}", node.join.host, number(generation)));
        return;
    }
    const std::string host = node.join.host;
    node.busy.reset();
    node.idle_since = state.now;
    t.say(fmt::format("the workers of node {} {}", host, succeeded ? "have succeeded" : "are stopped"));
    const bool of_this_group = generation == state.group.generation;
    if (of_this_group && succeeded) {
        state.group.members.at(id).succeeded = true;
        state.group.members.at(id).succeeded_at = state.now;
        std::erase_if(state.group.finished, [&](const auto& entry) { return is_of(state, id, entry.first); });
    }
    if (node.leaving && !may_end_the_job(state)) release(t, id);

    if (state.phase == Phase::kStopping) return conclude_if_stopped(t);
    if (!of_this_group || state.phase != Phase::kRunning) {
        if (state.nodes.contains(id)) return available(t, id);
        return gather(t);
    }
    if (!succeeded) {  // it was cut off for a while, and made sure by itself that nothing of it goes on
        return stop_group(t, because(fmt::format("node {} stopped its workers", host)));
    }
    if (!all_succeeded(state.group)) return;
    close_store(t);
    finish(t, success_verdict());
}

void reconsider_cause(Transition& t, TimePoint went_at, const std::string& reason) {
    Cause& cause = t.state.cause;
    if (!cause.failure || went_at > cause.failed_at + t.state.config.reconnect_grace) return;
    t.say(fmt::format("that explains the failure: {}", cause.reason));
    cause = {};
    change_reason(t, reason);
}

void change_reason(Transition& t, std::string reason) {
    t.state.cause.reason = std::move(reason);
    tell_members_to_stop(t);
}

void conclude_if_stopped(Transition& t) {
    const State& state = t.state;
    const bool somebody_runs = std::ranges::any_of(state.group.members, [&](const auto& entry) {
        const auto node = state.nodes.find(entry.first);
        return node != state.nodes.end() && node->second.link != Link::kLost &&
               node->second.busy == state.group.generation;
    });
    const auto& since = state.group.judging_since;
    const bool is_judged = !state.cause.failure || !since || state.now >= *since + kJudgePatience;
    if (!somebody_runs && is_judged) conclude(t);
}

void judging(Transition& t, const Judging& event) {
    Group& group = t.state.group;
    if (event.generation == group.generation) group.judging_since = t.state.now;
}

void judged(Transition& t, const Judged& event) {
    Group& group = t.state.group;
    if (event.generation != group.generation) return;
    group.judging_since.reset();
    if (!event.text.empty()) {  // else what was said before may still be why
        group.judged_at = t.state.now;
        group.judged = event.text;
        group.judged_dead = event.dead;
        group.judged_detail = event.detail;
        group.judged_hint = event.hint;
        group.judged_blamed = event.blamed;
        t.say(event.text);
    }
    if (t.state.phase == Phase::kStopping) conclude_if_stopped(t);
}

}  // namespace ddprun::coordinator
