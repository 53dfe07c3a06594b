#include "agent/group/worker_group.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <csignal>
#include <utility>

#include "agent/group/stop_text.hpp"
#include "agent/group/transition.hpp"
#include "common/exit_codes.hpp"
#include "common/text/escape.hpp"
#include "common/text/number.hpp"

namespace ddprun::agent::worker_group {

using protocol::Assignment;
using protocol::GroupSucceeded;
using protocol::WorkerFinished;

void Transition::on(const Assigned& event) {
    const Assignment& assignment = event.assignment;
    if (assignment.generation <= state_.generation) return;  // outdated
    if (leaving()) {
        send_stopped(assignment.generation);  // the job must not wait for workers that never start here
        return;
    }
    state_.next = assignment;
    stop_group();
    settle();
}

void Transition::on(const WorkerExited& event) {
    state_.running.erase(event.rank);
    state_.latest_step = std::max(state_.latest_step, event.latest_step);
    const bool stopped_at_notice = (state_.notice || state_.signalled) &&
                                   event.status.kind == ExitStatus::Kind::kExited &&
                                   event.status.number == exit_code::kPreempted;
    if (stopped_at_notice) state_.preempted = true;
    const bool ended_well = event.status.success() || stopped_at_notice;
    // The worker may have caught the error of a deadline. ReportFailure includes this check.
    if (ended_well) act(ReportTimeouts{event.rank});
    if (state_.phase == Phase::kStopping && event.by_itself && !ended_well) {
        // Peers may have failed because of this failure and been noticed first: the daemon must know the cause.
        act(ReportFailure{state_.generation, event.rank, event.status, ""});
    }
    if (state_.phase != Phase::kRunning) return;  // a victim, or too late to matter
    if (!ended_well) {
        explain_stop(fmt::format("rank {} {}; stopping the other workers of this node",
                                 state_.rank_base + number(event.rank), to_string(event.status)));
        fail(event.rank, event.status, "");
    } else if (state_.running.empty()) {
        send(GroupSucceeded{state_.generation, state_.preempted, state_.latest_step});
        state_.group_signal = SIGTERM;
        act(SignalGroup{SIGTERM});  // for processes that the workers left behind
        state_.phase = Phase::kSucceeded;
        state_.deadline = now_ + state_.grace;
    } else {  // a peer may fail because of its absence, which the verdict then explains
        send(WorkerFinished{state_.generation, Rank{state_.rank_base + number(event.rank)}});
    }
}

void Transition::on(const StartPaused& event) {
    if (state_.phase == Phase::kRunning && is_held(state_)) {
        state_.held_start = event.next;
        return;
    }
    if (state_.phase == Phase::kRunning) return act(StartMoreWorkers{event.next});
    state_.running.erase(state_.running.lower_bound(event.next), state_.running.end());
    act(EndStart{});
}

void Transition::on(const SpawnFailed& event) {
    state_.running.erase(state_.running.lower_bound(event.rank), state_.running.end());
    if (state_.phase != Phase::kRunning) return;
    explain_stop(event.error.message);
    fail(event.rank, {ExitStatus::Kind::kExited, code_of_failed_start(event.error), false}, event.error.message);
}

void Transition::on(const WorkersSpared&) {
    if (state_.phase == Phase::kStopping && !state_.killed) state_.spared_until = now_ + kSparedFor;
}

void Transition::on(const GroupReaped& event) {
    assert(state_.running.empty());
    state_.reaped = true;
    state_.deadline.reset();
    state_.wait_reported_at.reset();
    state_.spared_until.reset();
    state_.latest_step = std::max(state_.latest_step, event.steps.latest);
    if (state_.phase == Phase::kStopping) {
        send_stopped(state_.generation);
        state_.phase = Phase::kIdle;
    }
    settle();
}

void Transition::on(const AbortReceived& event) {
    if (state_.next && state_.next->generation == event.generation) {  // aborted before it could start here
        state_.next.reset();
        send_stopped(event.generation);
        return;
    }
    if (event.generation > state_.generation) {  // its assignment was lost with a connection: nothing of it runs here
        send_stopped(event.generation);
        return;
    }
    if (event.generation != state_.generation) return;
    // The daemon's description has host and message. A failure that a signal has followed is not the cause any more.
    if (event.failed && (!state_.stop_signal || state_.failed_here)) state_.failure = event.reason;
    if (state_.reaped) {  // it ended by itself, or never started
        send_stopped(event.generation);
        if (state_.phase == Phase::kSucceeded) state_.phase = Phase::kIdle;
        return;
    }
    // The daemon knows the cause best: a worker that failed here may be the victim of a failure elsewhere.
    if (!leaving()) explain_stop(fmt::format("stopping the workers: {}", event.reason));
    stop_group(for_workers(event.signal));
}

void Transition::on(const JobFinished& event) {
    const bool succeeded = event.verdict.exit_code == exit_code::kSuccess;
    if (succeeded && number(state_.generation) < 0) {
        end_with(
            Finish{.exit_code = exit_code::kNeverRan,
                   .why = "the job succeeded without this node, a spare that was not needed: no worker has run here",
                   .verdict = event.verdict});
    } else {
        if (state_.phase == Phase::kRunning)
            explain_stop(fmt::format("stopping the workers: {}", log_line(event.verdict.reason)));
        end_with(Finish{event.verdict.exit_code, "", event.verdict});
    }
    stop_group();
    settle();
}

/// The daemon may start the workers of the others again from now on. A group that is being stopped waits as well: it
/// could still write a file. After the verdict nothing is started any more.
void Transition::on(const LeaseEnded& event) {
    if (state_.ending && state_.ending->verdict) return;
    if (std::exchange(state_.frozen, true) || state_.reaped) return;
    if (state_.phase == Phase::kRunning) {  // most waits are over before the line is printed
        explain_stop(fmt::format("{}; the workers of this node wait until it is reached again", event.why),
                     event.held_until);
    }
    if (state_.killed) return;
    if (!state_.suspended || state_.phase != Phase::kRunning) act(SuspendGroup{});
    act(FreezeGroup{});
}

/// The daemon learns of the end of the workers when it is reached, and takes this node in like any other.
void Transition::on(const HoldEnded& event) {
    if (state_.reaped || state_.killed) return;
    if (!leaving())
        explain_stop(fmt::format("{}; ending the workers of this node, which goes on looking for it", event.why),
                     event.given_up_at);
    kill_group();
}

void Transition::on(const Welcomed& event) {
    act(AdoptNames{event.run_id, event.node_name, event.session, event.worker_key});
    if (event.lost && state_.next) {
        send_stopped(state_.next->generation);
        state_.next.reset();
    }
    if (event.lost && !state_.reaped) {
        const bool is_news = state_.phase != Phase::kStopping && !leaving();
        if (is_news) explain_stop("the job has gone on without this node; killing its workers");
        kill_group();
    }
    if (!std::exchange(state_.frozen, false)) return;
    if (!event.lost && state_.phase == Phase::kRunning) supersedes_reasons_ = true;
    act(ThawGroup{});  // also without a process: the next group is born in the same control group
    if (!state_.reaped && !state_.killed && state_.phase != Phase::kRunning) act(ContinueGroup{});
    release_group();
}

void Transition::on(const DaemonLost& event) {
    if (leaving()) return;  // the end is decided: the daemon closes its connections at the end of a job
    end_with(Finish{event.exit_code, event.why + describe_fate_of_workers(state_), {}, event.remedy});
    if (!state_.reaped) explain_stop(fmt::format("stopping the workers: {}", event.why));
    stop_group();
    settle();
}

/// There is no grace: without the guard, nothing would clean up should this process be killed as well. The connection
/// ends at once, so that the daemon counts this node as lost and assigns no new workers to it: heartbeats would keep
/// the other nodes waiting until the last worker is dead.
void Transition::on(const GuardLost&) {
    if (!state_.reaped) explain_stop("stopping the workers: ddprun-guard, the parent of this process, was killed");
    end_with(Finish{exit_code::kInfrastructure,
                    "ddprun-guard, the parent of this process, was killed; stopped all workers of this node",
                    {}});
    kill_group();
    act(DropConnection{});
    settle();
}

void Transition::on(const Tick&) {
    if (state_.spared_until && now_ >= *state_.spared_until && !state_.frozen) {
        state_.spared_until.reset();
        act(SignalSpared{});
    }
    if (state_.wait_reported_at && now_ >= *state_.wait_reported_at) {
        state_.wait_reported_at.reset();
        if (state_.deadline && now_ < *state_.deadline) act(PrintStopWait{describe_stop_wait(state_, now_)});
    }
    if (!state_.deadline || now_ < *state_.deadline) return;
    state_.deadline.reset();
    if (!state_.killed) {
        reason_ = fmt::format("processes are left {} after {}; killing them", seconds_text(state_.grace),
                              signal_name(state_.group_signal));
        kill_group();
        return;
    }
    act(Finish{
        .exit_code = exit_code::kInfrastructure,
        .why = fmt::format("processes of this node have survived SIGKILL for {}", seconds_text(kUnkillableAfter)),
        .verdict = {},
        .processes_left = true});
    state_.phase = Phase::kDone;
}

std::optional<TimePoint> next_deadline(const State& state) {
    std::optional<TimePoint> next;
    const auto spared_until = state.frozen ? std::nullopt : state.spared_until;
    for (const auto& due : {spared_until, state.wait_reported_at, state.deadline}) {
        if (due) next = next ? std::min(*next, *due) : *due;
    }
    return next;
}

Step step(State state, const Event& event) {
    // After the end only problems with log files are reported: those are closed last.
    const bool over = state.phase == Phase::kDone && !std::holds_alternative<LogFileProblem>(event.what);
    Transition transition(std::move(state), event.now);
    if (!over) std::visit([&](const auto& what) { transition.on(what); }, event.what);
    return std::move(transition).take();
}

}  // namespace ddprun::agent::worker_group
