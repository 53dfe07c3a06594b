#include "rendezvous/coordinator/preemption.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "common/text/number.hpp"
#include "common/text/words.hpp"
#include "rendezvous/coordinator/gathering.hpp"
#include "rendezvous/coordinator/running.hpp"
#include "rendezvous/coordinator/verdicts.hpp"

namespace ddprun::coordinator {
namespace {

using std::chrono::milliseconds;

/// A restart for the sake of more nodes would end workers that save; a job that goes on after a signal grows later.
constexpr std::chrono::minutes kHoldsGrowthFor{10};

/// Returns the notice for the running group as it is to be sent now.
Preempt notice_now(const State& state) {
    Preempt message = state.preemption->message;
    message.generation = state.group.generation;
    message.stop_at = state.group.stop_at;
    if (state.preemption->deadline) {
        const Duration left = *state.preemption->deadline - state.now;
        message.time_left = std::max(milliseconds(0), std::chrono::duration_cast<milliseconds>(left));
    }
    return message;
}

/// Returns whether the workers of this member run, and it can be reached now or later.
bool is_running(const State& state, const NodeId& id) {
    const auto node = state.nodes.find(id);
    return node != state.nodes.end() && node->second.busy == state.group.generation;
}

void send_to_members(Transition& t) {
    const Preempt message = notice_now(t.state);
    for (const auto& [id, member] : t.state.group.members) {
        if (is_running(t.state, id) && t.state.nodes.at(id).link == Link::kConnected) t.send(id, message);
    }
}

/// Returns the ranks that have not ended.
std::vector<int> unfinished_ranks(const State& state) {
    std::vector<int> ranks;
    for (const auto& [id, member] : state.group.members) {
        if (member.succeeded || !is_running(state, id)) continue;
        const int slots = slots_of(state.nodes.at(id).join);
        for (int rank = member.assignment.rank_base; rank < member.assignment.rank_base + slots; ++rank)
            if (!state.group.finished.contains(Rank{rank})) ranks.push_back(rank);
    }
    std::ranges::sort(ranks);
    return ranks;
}

/// Returns whether the notice changes what is known, and notes it. After one by a signal, another kind is meant.
bool note(State& state, const PreemptionNotice& notice) {
    std::optional<TimePoint> deadline;
    if (notice.time_left) deadline = state.now + *notice.time_left;
    if (!state.preemption) {
        state.preemption =
            Preemption{{.reason = notice.reason, .by_signal = notice.by_signal}, deadline, state.now, {}};
        return true;
    }
    Preemption& known = *state.preemption;
    const bool is_meant = known.message.by_signal && !notice.by_signal;
    const bool is_earlier = deadline && (!known.deadline || *deadline < *known.deadline);
    if (is_earlier) known.deadline = deadline;
    if (is_meant) {
        known.message.by_signal = false;
        known.message.reason = notice.reason;
    }
    return is_meant || is_earlier;
}

void preempt(Transition& t, const PreemptionNotice& notice) {
    if (t.state.phase == Phase::kFinished || !note(t.state, notice)) return;
    t.say(fmt::format("notice of preemption: {}", notice.reason));
    if (t.state.phase == Phase::kRunning) send_to_members(t);
    gather(t);
}

/// Returns how many members have workers.
std::size_t count_running(const State& state) {
    return static_cast<std::size_t>(std::ranges::count_if(
        state.group.members, [&](const auto& member) { return is_running(state, member.first); }));
}

/// No rank reaches this call. It is exact in JSON.
constexpr std::uint64_t kNever = std::uint64_t{1} << 52;

}  // namespace

void preemption_noticed(Transition& t, const NodeId& id, PreemptionNotice notice) {
    if (notice.by_signal)
        notice.reason = fmt::format("{} got {}", name_node(t.state.nodes.at(id).join.host), notice.reason);
    preempt(t, notice);
}

Result<std::string> order_preemption(Transition& t, std::optional<milliseconds> time_left) {
    State& state = t.state;
    if (state.phase == Phase::kFinished) return Error{Errc::kRefused, "the job is over"};
    const bool known = state.preemption && !state.preemption->message.by_signal;
    preempt(t, {.reason = "ddpctl preempt", .time_left = time_left});
    const std::size_t nodes = count_running(state);
    switch (state.phase) {
        case Phase::kFinished: return std::string("the job had no workers: it has ended");
        case Phase::kGathering: return std::string("no node has joined yet: the job ends when one does");
        case Phase::kOpening: return std::string("workers are about to start: they stop in their first step");
        case Phase::kStopping: return std::string("the workers are being stopped already: the job ends then");
        case Phase::kRunning: break;
    }
    if (known)
        return fmt::format("{} {} notice already, and stop in one step", counted(nodes, "node"),
                           inflect(nodes, "has", "have"));
    return fmt::format("{} {} notice to stop in one step", counted(nodes, "node"), inflect(nodes, "gets", "get"));
}

void give_notice(Transition& t) {
    if (!t.state.preemption || t.state.phase != Phase::kRunning) return;
    t.state.preemption->overdue_since.reset();
    send_to_members(t);
}

void repeat_notice(Transition& t, const NodeId& id) {
    if (t.state.preemption) t.send(id, notice_now(t.state));
}

void steps_taken(Transition& t, const NodeId& id, const StepsTaken& message) {
    Group& group = t.state.group;
    const auto member = group.members.find(id);
    if (message.generation != group.generation || member == group.members.end() || group.stop_at > 0) return;
    member->second.steps_taken = message.calls;
    agree_on_stop(t);
}

/// Every rank sees the notice in its call after the one that it has answered with, and waits there. So all of them can
/// still stop in the latest of these calls.
void agree_on_stop(Transition& t) {
    State& state = t.state;
    if (!state.preemption || state.phase != Phase::kRunning || state.group.stop_at > 0) return;
    std::uint64_t most = 0;
    for (const auto& [id, member] : state.group.members) {
        if (member.succeeded) continue;
        if (!member.steps_taken) return;
        most = std::max(most, *member.steps_taken);
    }
    if (state.group.is_ending) {  // some ranks have finished, and would be missing in that call
        state.group.stop_at = kNever;
        t.say("the job is about to end: no rank stops before");
    } else {
        state.group.stop_at = most + 1;
        t.say(fmt::format("all ranks stop in call {} of agree_to_stop()", state.group.stop_at));
    }
    send_to_members(t);
}

bool ends_instead_of_starting(const State& state) { return state.preemption && !state.preemption->message.by_signal; }

bool holds_growth(const State& state) {
    if (!state.preemption) return false;
    return ends_instead_of_starting(state) || state.now < state.preemption->since + kHoldsGrowthFor;
}

bool asks_why_overdue(const State& state) {
    return state.phase == Phase::kRunning && state.preemption && state.preemption->overdue_since;
}

void end_overdue_preemption(Transition& t) {
    State& state = t.state;
    if (!state.preemption || !state.preemption->deadline || state.now < *state.preemption->deadline) return;
    if (state.phase != Phase::kRunning) return;
    if (!state.preemption->overdue_since) state.preemption->overdue_since = state.now;
    const TimePoint since = *state.preemption->overdue_since;
    if (state.group.diagnosed_at < since && state.now < since + kDiagnosisTimeout) return;
    Cause cause =
        because(fmt::format("the deadline of the preemption has passed ({})", state.preemption->message.reason));
    cause.verdict = overdue_verdict(state, unfinished_ranks(state));
    if (state.group.diagnosed_at >= since) {
        cause.verdict->diagnosis = state.group.diagnosis.text;
        cause.verdict->hint = state.group.diagnosis.hint;
    }
    stop_group(t, std::move(cause));
}

}  // namespace ddprun::coordinator
