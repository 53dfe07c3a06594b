// The rows of docs/design/003-worker-group.md about signals that this process got, or that another node forwards.

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "agent/group/transition.hpp"

namespace ddprun::agent::worker_group {

void Transition::on(const StopSignal& event) {
    if (!state_.stop_signal) {
        reason_ =
            fmt::format("got {}; {}", signal_name(event.signal), state_.reaped ? "leaving" : "stopping the workers");
        outcome_follows_ = !state_.killed;
        supersedes_reasons_ = true;
        state_.stop_signal = event.signal;
        const bool ended_a_worker = state_.failed_here && state_.failed_by == event.signal;
        if (ended_a_worker) {  // a scheduler signals every process of a job
            state_.failure.clear();
            state_.failed_here = false;
        }
        if ((ended_a_worker || is_own_interruption()) && now_ - state_.stopped_at < kSameSignal)
            state_.drained += ended_a_worker ? 1 : 0;
        else
            state_.drained = state_.running.size();
        state_.stopped_at = now_;
        send(protocol::Leave{event.signal});
        stop_group(for_workers(event.signal));
        if (!state_.reaped && !state_.killed) state_.wait_reported_at = now_ + kStopWaitReportedAfter;
        settle();
    } else if ((event.signal == SIGINT || event.signal == SIGTERM) && now_ - state_.stopped_at >= kSecondSignalAfter) {
        if (!state_.killed) reason_ = fmt::format("got {} again; killing the workers", signal_name(event.signal));
        supersedes_reasons_ = !state_.killed;
        kill_group();
    }
}

bool Transition::is_second_of_pair(int signal, int step, TimePoint sent) {
    Notification& newest = state_.notified[signal];
    const Duration apart = sent < newest.at ? newest.at - sent : sent - newest.at;
    if (apart >= kSameNotification && sent < newest.at) return false;  // repeated, and too old to be compared
    if (apart >= kSameNotification) newest.unmatched = 0;
    const bool second = step > 0 ? newest.unmatched < 0 : newest.unmatched > 0;
    newest = {std::max(newest.at, sent), newest.unmatched + step};
    return second;
}

void Transition::on(const NotifySignal& event) {
    if (event.signal == SIGUSR1 && !leaving()) {
        state_.signalled = true;
        if (!std::exchange(state_.notice_reported, true))
            send(protocol::PreemptionNotice{.reason = "SIGUSR1", .by_signal = true});
    }
    if (state_.phase != Phase::kRunning)
        return act(PrintDetail{fmt::format("got {}; no worker runs that could get it", signal_name(event.signal))});
    const bool known = is_second_of_pair(event.signal, -1, now_);
    if (!known) act(NotifyWorkers{event.signal});
    if (state_.node_count > 1) act(ForwardSignal{state_.generation, event.signal, known});
}

void Transition::on(const NotifyReceived& event) {
    const bool known = event.signal == SIGUSR1 || event.signal == SIGUSR2;
    if (!known || event.generation != state_.generation || state_.phase != Phase::kRunning) return;
    if (event.number <= state_.newest_forwarded) return;  // repeated after a reconnect
    state_.newest_forwarded = event.number;
    if (event.signal == SIGUSR1) state_.signalled = true;
    if (is_second_of_pair(event.signal, 1, now_ - event.ago)) return;  // this process got it, too
    act(NotifyWorkers{event.signal});
    act(PrintDetail{fmt::format("another node forwards {} to the workers", signal_name(event.signal))});
}

void Transition::on(const TimeLimitNear& event) {
    if (!leaving()) send(protocol::PreemptionNotice{.reason = event.why});
}

/// The notice comes again after a reconnect, with another reason or deadline, and with the step at which to stop when
/// all nodes have answered. It may come before the group that it is for can start here.
void Transition::on(const PreemptReceived& event) {
    const protocol::Preempt& notice = event.notice;
    if (state_.next && notice.generation == state_.next->generation) {
        state_.next_notice = notice;
        return;
    }
    if (notice.generation != state_.generation || state_.phase != Phase::kRunning) return;
    const bool by_signal = !state_.notice || state_.notice->by_signal;  // so far
    const bool is_earlier = notice.time_left && (!state_.notice_deadline ||
                                                 now_ + *notice.time_left + kSameDeadline < *state_.notice_deadline);
    if (is_earlier) state_.notice_deadline = now_ + *notice.time_left;
    if (!state_.notice || state_.notice->reason != notice.reason || is_earlier) {
        act(GiveNotice{notice});
        act(PrintPreemption{
            fmt::format("notice of preemption: {}; the workers are to stop in one step", notice.reason)});
    }
    if (by_signal && !notice.by_signal) act(NotifyWorkers{SIGUSR1});
    state_.notice = notice;
    if (notice.stop_at > 0) act(SetStop{notice.stop_at});
}

/// Stops the workers, but not this process: its heartbeats keep this node in the job, and the workers of other nodes
/// wait for those of this one. A group that is being stopped goes on, or it would be killed at the end of its grace.
void Transition::on(const Suspended&) {
    const bool held = is_held(state_);
    state_.suspended = true;
    if (state_.phase == Phase::kRunning && !held) act(SuspendGroup{});
}

void Transition::on(const Continued&) {
    if (std::exchange(state_.suspended, false)) release_group();
}

}  // namespace ddprun::agent::worker_group
