#include "agent/group/transition.hpp"

#include <fmt/format.h>

#include "agent/group/stop_text.hpp"
#include "common/exit_codes.hpp"

namespace ddprun::agent::worker_group {

using protocol::Assignment;

void Transition::start(const Assignment& assignment) {
    state_.phase = Phase::kRunning;
    state_.generation = assignment.generation;
    state_.rank_base = assignment.rank_base;
    state_.node_count = assignment.node_count;
    state_.reaped = state_.killed = false;
    state_.next.reset();
    state_.failure.clear();
    state_.failed_here = false;
    state_.notice.reset();
    state_.notice_deadline.reset();
    state_.signalled = state_.preempted = false;
    for (int i = 0; i < state_.slots; ++i) state_.running.insert(LocalRank{i});
    act(StartWorkers{assignment});
    if (const auto notice = std::exchange(state_.next_notice, std::nullopt)) on(PreemptReceived{*notice});
}

void Transition::end_held_start() {
    if (!state_.held_start) return;
    state_.running.erase(state_.running.lower_bound(*state_.held_start), state_.running.end());
    state_.held_start.reset();
    act(EndStart{});
}

void Transition::stop_group(int signal) {
    if (state_.reaped) return;
    if (state_.frozen) return kill_group();
    if (state_.phase == Phase::kStopping) return;
    end_held_start();
    if (state_.phase == Phase::kRunning) {
        state_.group_signal = signal;
        state_.stopped_at = now_;
        state_.drained = state_.running.size();
        act(SignalGroup{signal});
        state_.deadline = now_ + state_.grace;
    }
    state_.phase = Phase::kStopping;
}

void Transition::kill_group() {
    if (state_.reaped || state_.killed) return;
    end_held_start();
    if (state_.phase == Phase::kRunning) state_.phase = Phase::kStopping;
    state_.killed = true;
    state_.wait_reported_at.reset();
    state_.spared_until.reset();
    state_.deadline = now_ + kUnkillableAfter;
    act(SignalGroup{SIGKILL});
}

void Transition::end_with(Finish finish) {
    if (!state_.ending || finish.verdict) state_.ending = std::move(finish);
}

bool Transition::is_own_interruption() const {
    const auto& ending = state_.ending;
    return state_.stop_signal && ending && ending->verdict && ending->verdict->outcome == protocol::Outcome::kStopped &&
           ending->exit_code == exit_code::kSignalBase + *state_.stop_signal;
}

void Transition::settle() {
    if (!state_.reaped) return;
    if (state_.ending && !is_own_interruption()) {
        act(*state_.ending);
        state_.phase = Phase::kDone;
    } else if (state_.stop_signal) {
        act(Finish{.exit_code = exit_code::kSignalBase + *state_.stop_signal,
                   .why = describe_interruption(state_),
                   .verdict = {},
                   .interrupted = true,
                   .failure = state_.failed_here ? state_.failure : ""});
        state_.phase = Phase::kDone;
    } else if (state_.next && !is_held(state_)) {
        start(Assignment(*state_.next));
    }
}

void Transition::release_group() {
    if (is_held(state_)) return;
    if (state_.phase == Phase::kRunning) {
        act(ContinueGroup{});
        if (state_.held_start) act(StartMoreWorkers{*std::exchange(state_.held_start, std::nullopt)});
    }
    settle();
}

void Transition::fail(LocalRank rank, const ExitStatus& status, std::string why) {
    state_.failed_here = true;
    state_.failed_by = status.kind == ExitStatus::Kind::kSignaled ? status.number : 0;
    state_.failure = why.empty() ? fmt::format("rank {} {}", state_.rank_base + number(rank), to_string(status)) : why;
    act(ReportFailure{state_.generation, rank, status, std::move(why)});
    stop_group();
}

}  // namespace ddprun::agent::worker_group
