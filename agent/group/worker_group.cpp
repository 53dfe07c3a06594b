#include "agent/group/worker_group.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <csignal>
#include <utility>

#include "agent/group/answers.hpp"
#include "agent/group/stop_text.hpp"
#include "common/exit_codes.hpp"
#include "common/text/number.hpp"

namespace ddprun::agent::worker_group {
namespace {

using protocol::Assignment;
using protocol::GroupStopped;
using protocol::GroupSucceeded;
using protocol::Leave;
using protocol::WorkerFinished;

/// Transition: builds one Step, for step() alone. The on() functions are the rows of the table, one per event.
class Transition {
public:
    Transition(State state, TimePoint now) : state_(std::move(state)), now_(now) {}

    Step take() && {
        return {std::move(state_), std::move(actions_), std::move(reason_), outcome_follows_, supersedes_reasons_};
    }

    void on(const Assigned& event);
    void on(const WorkerExited& event);
    void on(const StartPaused& event);
    void on(const SpawnFailed& event);
    void on(const WorkersSpared& event);
    void on(const GroupReaped& event);
    void on(const AbortReceived& event);
    void on(const JobFinished& event);
    void on(const StopSignal& event);
    void on(const DaemonLost& event);
    void on(const GuardLost& event);
    void on(const Tick& event);
    /// Answers the events that change no state.
    void on(const auto& event) {
        for (Action& action : answer(state_, event)) act(std::move(action));
    }

private:
    [[nodiscard]] bool leaving() const { return state_.ending || state_.stop_signal; }
    void act(Action action) { actions_.push_back(std::move(action)); }
    void send(protocol::AgentMessage message) {
        if (!state_.guard_lost) act(SendMessage{std::move(message)});
    }

    /// Sets the reason for a stop that begins here.
    void explain_stop(std::string reason) {
        reason_ = std::move(reason);
        outcome_follows_ = true;
    }

    void start(const Assignment& assignment);
    void fail(LocalRank rank, const ExitStatus& status, std::string why);
    void stop_group(int signal = SIGTERM);
    void kill_group();
    void end_with(Finish finish);
    void settle();

    State state_;
    TimePoint now_;
    std::vector<Action> actions_;
    std::string reason_;
    bool outcome_follows_ = false;
    bool supersedes_reasons_ = false;
};

void Transition::start(const Assignment& assignment) {
    state_.phase = Phase::kRunning;
    state_.generation = assignment.generation;
    state_.rank_base = assignment.rank_base;
    state_.node_count = assignment.node_count;
    state_.reaped = state_.killed = false;
    state_.next.reset();
    for (int i = 0; i < state_.slots; ++i) state_.running.insert(LocalRank{i});
    act(StartWorkers{assignment});
}

/// Stops the group: sends it `signal` and gives it the grace. A later call sends nothing and does not extend the grace.
/// Nor does a call after all workers have succeeded: the processes that they left behind have their signal already.
void Transition::stop_group(int signal) {
    if (state_.reaped || state_.phase == Phase::kStopping) return;
    if (state_.phase == Phase::kRunning) {
        state_.group_signal = signal;
        act(SignalGroup{signal});
        state_.deadline = now_ + state_.grace;
    }
    state_.phase = Phase::kStopping;
}

void Transition::kill_group() {
    if (state_.reaped || state_.killed) return;
    if (state_.phase == Phase::kRunning) state_.phase = Phase::kStopping;
    state_.killed = true;
    state_.spared_until.reset();
    state_.deadline = now_ + kUnkillableAfter;
    act(SignalGroup{SIGKILL});
}

/// Decides how to end. The first ending counts, but the verdict of the whole job replaces this node's own.
void Transition::end_with(Finish finish) {
    if (!state_.ending || finish.verdict) state_.ending = std::move(finish);
}

/// Performs what had to wait until no process of the group is left: ends the agent, or starts the next group.
void Transition::settle() {
    if (!state_.reaped) return;
    if (state_.ending) {
        act(*state_.ending);
        state_.phase = Phase::kDone;
    } else if (state_.stop_signal) {
        act(Finish{.exit_code = exit_code::kSignalBase + *state_.stop_signal,
                   .why = describe_interruption(state_),
                   .verdict = {},
                   .interrupted = true});
        state_.phase = Phase::kDone;
    } else if (state_.next) {
        start(Assignment(*state_.next));
    }
}

/// Reports a failed worker at once and stops the group; the siblings get their grace.
void Transition::fail(LocalRank rank, const ExitStatus& status, std::string why) {
    act(ReportFailure{state_.generation, rank, status, std::move(why)});
    stop_group();
}

void Transition::on(const Assigned& event) {
    const Assignment& assignment = event.assignment;
    if (assignment.generation <= state_.generation) return;  // outdated
    if (leaving()) {
        send(GroupStopped{assignment.generation});  // the job must not wait for workers that never start here
        return;
    }
    state_.next = assignment;
    stop_group();
    settle();
}

void Transition::on(const WorkerExited& event) {
    state_.running.erase(event.rank);
    // The worker may have caught the error of a deadline. ReportFailure includes this check.
    if (event.status.success()) act(ReportTimeouts{event.rank});
    if (state_.phase == Phase::kStopping && event.by_itself && !event.status.success()) {
        // Peers may have failed because of this failure and been noticed first: the daemon must know the cause.
        act(ReportFailure{state_.generation, event.rank, event.status, ""});
    }
    if (state_.phase != Phase::kRunning) return;  // a victim, or too late to matter
    if (!event.status.success()) {
        explain_stop(fmt::format("rank {} {}; stopping the other workers of this node",
                                 state_.rank_base + number(event.rank), to_string(event.status)));
        fail(event.rank, event.status, "");
    } else if (state_.running.empty()) {
        send(GroupSucceeded{state_.generation});
        state_.group_signal = SIGTERM;
        act(SignalGroup{SIGTERM});  // for processes that the workers left behind
        state_.phase = Phase::kSucceeded;
        state_.deadline = now_ + state_.grace;
    } else {  // a peer may fail because of its absence, which the verdict then explains
        send(WorkerFinished{state_.generation, Rank{state_.rank_base + number(event.rank)}});
    }
}

void Transition::on(const StartPaused& event) {
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

void Transition::on(const GroupReaped&) {
    assert(state_.running.empty());
    state_.reaped = true;
    state_.deadline.reset();
    state_.spared_until.reset();
    if (state_.phase == Phase::kStopping) {
        send(GroupStopped{state_.generation});
        state_.phase = Phase::kIdle;
    }
    settle();
}

void Transition::on(const AbortReceived& event) {
    if (state_.next && state_.next->generation == event.generation) {  // aborted before it could start here
        state_.next.reset();
        send(GroupStopped{event.generation});
        return;
    }
    if (event.generation != state_.generation) return;
    if (state_.reaped) {  // it ended by itself, or never started
        send(GroupStopped{event.generation});
        if (state_.phase == Phase::kSucceeded) state_.phase = Phase::kIdle;
        return;
    }
    // The daemon knows the cause best: a worker that failed here may be the victim of a failure elsewhere.
    if (!leaving()) explain_stop(fmt::format("stopping the workers: {}", event.reason));
    stop_group();
}

void Transition::on(const JobFinished& event) {
    const bool succeeded = event.verdict.exit_code == exit_code::kSuccess;
    if (succeeded && number(state_.generation) < 0) {
        end_with(
            Finish{.exit_code = exit_code::kNeverRan,
                   .why = "the job succeeded without this node, a spare that was not needed: no worker has run here",
                   .verdict = event.verdict});
    } else {
        end_with(Finish{event.verdict.exit_code, "", event.verdict});
    }
    stop_group();
    settle();
}

void Transition::on(const StopSignal& event) {
    if (!state_.stop_signal) {
        reason_ =
            fmt::format("got {}; {}", signal_name(event.signal), state_.reaped ? "leaving" : "stopping the workers");
        outcome_follows_ = !state_.killed;
        supersedes_reasons_ = true;
        state_.stop_signal = event.signal;
        state_.drained = state_.running.size();
        state_.stopped_at = now_;
        send(Leave{event.signal});
        stop_group(event.for_workers);
        settle();
    } else if ((event.signal == SIGINT || event.signal == SIGTERM) && now_ - state_.stopped_at >= kSecondSignalAfter) {
        if (!state_.killed) reason_ = fmt::format("got {} again; killing the workers", signal_name(event.signal));
        supersedes_reasons_ = !state_.killed;
        kill_group();
    }
}

void Transition::on(const DaemonLost& event) {
    if (leaving()) return;  // the end is decided: the daemon closes its connections at the end of a job
    end_with(Finish{event.exit_code, event.why + describe_fate_of_workers(state_), {}, event.remedy});
    if (!state_.reaped) explain_stop(fmt::format("stopping the workers: {}", event.why));
    stop_group();
    settle();
}

/// There is no grace: without the guard, nothing would clean up should this process be killed as well. The daemon gets
/// no further message, so that it counts this node as lost and assigns no new workers to it.
void Transition::on(const GuardLost&) {
    state_.guard_lost = true;
    end_with(Finish{exit_code::kInfrastructure,
                    "ddprun-guard, the parent of this process, was killed; stopped all workers of this node",
                    {}});
    kill_group();
    settle();
}

void Transition::on(const Tick&) {
    if (state_.spared_until && now_ >= *state_.spared_until) {
        state_.spared_until.reset();
        act(SignalSpared{});
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

}  // namespace

std::optional<TimePoint> next_deadline(const State& state) {
    if (!state.spared_until || !state.deadline) return state.spared_until ? state.spared_until : state.deadline;
    return std::min(*state.spared_until, *state.deadline);
}

Step step(State state, const Event& event) {
    // After the end only problems with log files are reported: those are closed last.
    const bool over = state.phase == Phase::kDone && !std::holds_alternative<LogFileProblem>(event.what);
    Transition transition(std::move(state), event.now);
    if (!over) std::visit([&](const auto& what) { transition.on(what); }, event.what);
    return std::move(transition).take();
}

}  // namespace ddprun::agent::worker_group
