#include "agent/worker_group.hpp"

#include <fmt/format.h>

#include <cassert>
#include <csignal>
#include <utility>

#include "common/exit_codes.hpp"

namespace ddprun::agent {
namespace {

using coordinator::Assignment;
using coordinator::GroupStopped;
using coordinator::GroupSucceeded;
using coordinator::Leave;
using coordinator::WorkerFinished;

/// As a shell would say it, but a node that has no process, descriptor or memory left is not the program's fault.
int code_of_failed_start(const Error& error) {
    namespace errc = boost::system::errc;
    if (error.code == errc::no_such_file_or_directory || error.code == errc::not_a_directory) {
        return exit_code::kProgramNotFound;
    }
    if (error.code == Errc::kLimit) return exit_code::kInfrastructure;
    if (error.code == Errc::kSystem) return exit_code::kInternal;
    for (const auto exhausted :
         {errc::resource_unavailable_try_again, errc::not_enough_memory, errc::too_many_files_open,
          errc::too_many_files_open_in_system, errc::no_space_on_device}) {
        if (error.code == exhausted) return exit_code::kInfrastructure;
    }
    return exit_code::kCannotExecute;
}

/// The last line of a node that a signal ends.
std::string interrupted(const State& state) {
    const std::string name = signal_name(*state.stop_signal);
    if (state.drained == 0) return fmt::format("interrupted by {}; no worker was running", name);
    return fmt::format("interrupted by {}: {} worker{} stopped on {} node", name, state.drained,
                       state.drained == 1 ? "" : "s", state.node_count == 1 ? "1" : "this");
}

/// Behind the loss of the daemon, after which no verdict will say it. Empty: there were none.
std::string what_became_of_workers(const State& state) {
    if (state.phase == Phase::kSucceeded)
        return ". The workers of this node had all exited with 0, but the job's end is unknown";
    if (state.phase != Phase::kRunning && state.phase != Phase::kStopping) return "";
    if (state.slots == 1) return ". The worker of this node was stopped";
    return fmt::format(". The {} workers of this node were stopped", state.slots);
}

/// A step in the making. The on() functions are the rows of the table, one per event.
class Transition {
public:
    Transition(State state, TimePoint now) : state_(std::move(state)), now_(now) {}

    Step take() && { return {std::move(state_), std::move(actions_), std::move(reason_)}; }

    void on(const Assigned& event);
    void on(const WorkerExited& event);
    void on(const SpawnFailed& event);
    void on(const GroupGone& event);
    void on(const AbortReceived& event);
    void on(const JobFinished& event);
    void on(const StopSignal& event);
    void on(const NotifySignal& event);
    void on(const DaemonLost& event);
    void on(const GuardLost& event);
    void on(const Tick& event);

private:
    [[nodiscard]] bool leaving() const { return state_.ending || state_.stop_signal; }
    void act(Action action) { actions_.push_back(std::move(action)); }
    void send(coordinator::AgentMessage message) {
        if (!state_.guard_lost) act(SendMessage{std::move(message)});
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
};

void Transition::start(const Assignment& assignment) {
    state_.phase = Phase::kRunning;
    state_.generation = assignment.generation;
    state_.rank_base = assignment.rank_base;
    state_.node_count = assignment.node_count;
    state_.gone = state_.killed = false;
    state_.next.reset();
    for (int i = 0; i < state_.slots; ++i) state_.running.insert(LocalRank{i});
    act(StartWorkers{assignment});
}

/// Asks the group to end. The grace counts from the first time; a group that ends by itself gets no second signal.
void Transition::stop_group(int signal) {
    if (state_.gone || state_.phase == Phase::kStopping) return;
    if (state_.phase == Phase::kRunning) {
        state_.asked_with = signal;
        act(SignalGroup{signal});
        state_.deadline = now_ + state_.grace;
    }
    state_.phase = Phase::kStopping;
}

void Transition::kill_group() {
    if (state_.gone || state_.killed) return;
    if (state_.phase == Phase::kRunning) state_.phase = Phase::kStopping;
    state_.killed = true;
    state_.deadline = now_ + kUnkillableAfter;
    act(SignalGroup{SIGKILL});
}

/// The first reason to end is the one that counts, but a verdict of the whole job outweighs what this node thought.
void Transition::end_with(Finish finish) {
    if (!state_.ending || finish.verdict) state_.ending = std::move(finish);
}

/// Goes on with what had to wait until nothing of the group is left.
void Transition::settle() {
    if (!state_.gone) return;
    if (state_.ending) {
        act(*state_.ending);
        state_.phase = Phase::kDone;
    } else if (state_.stop_signal) {
        act(Finish{exit_code::kSignalBase + *state_.stop_signal, interrupted(state_), {}});
        state_.phase = Phase::kDone;
    } else if (state_.next) {
        start(Assignment(*state_.next));
    }
}

/// One failed worker ends the group: the daemon hears of it at once, the siblings get their grace.
void Transition::fail(LocalRank rank, const ExitStatus& status, std::string why) {
    act(ReportFailure{state_.generation, rank, status, std::move(why)});
    stop_group();
}

void Transition::on(const Assigned& event) {
    const Assignment& assignment = event.assignment;
    if (assignment.generation <= state_.generation) return;  // of the past
    if (leaving()) {
        send(GroupStopped{assignment.generation});  // nobody shall wait for workers that never start here
        return;
    }
    state_.next = assignment;
    stop_group();
    settle();
}

void Transition::on(const WorkerExited& event) {
    state_.running.erase(event.rank);
    if (state_.phase == Phase::kStopping && event.unasked && !event.status.success()) {
        // Peers may have noticed this failure, and failed of it, before we did: the daemon must know the cause.
        act(ReportFailure{state_.generation, event.rank, event.status, ""});
    }
    if (state_.phase != Phase::kRunning) return;  // a victim, or too late to matter
    if (!event.status.success()) {
        reason_ = fmt::format("rank {} {}; stopping the other workers of this node",
                              state_.rank_base + number(event.rank), to_string(event.status));
        fail(event.rank, event.status, "");
    } else if (state_.running.empty()) {
        send(GroupSucceeded{state_.generation});
        state_.asked_with = SIGTERM;
        act(SignalGroup{SIGTERM});  // for processes that the workers left behind
        state_.phase = Phase::kSucceeded;
        state_.deadline = now_ + state_.grace;
    } else {  // should a peer fail of its absence, the verdict can say so
        send(WorkerFinished{state_.generation, Rank{state_.rank_base + number(event.rank)}});
    }
}

void Transition::on(const SpawnFailed& event) {
    state_.running.erase(state_.running.lower_bound(event.rank), state_.running.end());
    if (state_.phase != Phase::kRunning) return;
    reason_ = event.error.message;
    fail(event.rank, {ExitStatus::Kind::kExited, code_of_failed_start(event.error), false}, event.error.message);
}

void Transition::on(const GroupGone&) {
    assert(state_.running.empty());
    state_.gone = true;
    state_.deadline.reset();
    if (state_.phase == Phase::kStopping) {
        send(GroupStopped{state_.generation});
        state_.phase = Phase::kIdle;
    }
    settle();
}

void Transition::on(const AbortReceived& event) {
    if (state_.next && state_.next->generation == event.generation) {  // given up before it could start here
        state_.next.reset();
        send(GroupStopped{event.generation});
        return;
    }
    if (event.generation != state_.generation) return;
    if (state_.gone) {  // it ended by itself, or never began
        send(GroupStopped{event.generation});
        if (state_.phase == Phase::kSucceeded) state_.phase = Phase::kIdle;
        return;
    }
    // The daemon knows best why: what failed here may have failed of something elsewhere.
    if (!leaving()) reason_ = fmt::format("stopping the workers: {}", event.reason);
    stop_group();
}

void Transition::on(const JobFinished& event) {
    end_with(Finish{event.verdict.exit_code, "", event.verdict});
    stop_group();
    settle();
}

void Transition::on(const StopSignal& event) {
    if (!state_.stop_signal) {
        reason_ =
            fmt::format("got {}; {}", signal_name(event.signal), state_.gone ? "leaving" : "stopping the workers");
        state_.stop_signal = event.signal;
        state_.drained = state_.running.size();
        state_.stopped_at = now_;
        send(Leave{event.signal});
        stop_group(event.for_workers);
        settle();
    } else if ((event.signal == SIGINT || event.signal == SIGTERM) && now_ - state_.stopped_at >= kSecondSignalAfter) {
        if (!state_.killed) reason_ = fmt::format("got {} again; killing the workers", signal_name(event.signal));
        kill_group();
    }
}

void Transition::on(const NotifySignal& event) {
    if (state_.phase == Phase::kRunning) act(NotifyWorkers{event.signal});
}

void Transition::on(const DaemonLost& event) {
    if (leaving()) return;  // the end is decided, and the daemon closes connections at the end of a job
    end_with(Finish{event.exit_code, event.why + what_became_of_workers(state_), {}, event.remedy});
    if (!state_.gone) reason_ = fmt::format("stopping the workers: {}", event.why);
    stop_group();
    settle();
}

/// Without the guard nobody cleans up after us, so there is no time for grace. Nor may the daemon give us new workers,
/// so it is told nothing: it will see a node that is lost.
void Transition::on(const GuardLost&) {
    state_.guard_lost = true;
    end_with(Finish{exit_code::kInfrastructure,
                    "ddprun-guard, the parent of this process, was killed; stopped all workers of this node",
                    {}});
    kill_group();
    settle();
}

void Transition::on(const Tick&) {
    if (!state_.deadline || now_ < *state_.deadline) return;
    state_.deadline.reset();
    if (!state_.killed) {
        reason_ = fmt::format("not everything has ended {} s after {}; killing what is left",
                              std::chrono::duration<double>(state_.grace).count(), signal_name(state_.asked_with));
        kill_group();
        return;
    }
    act(Finish{exit_code::kInfrastructure,
               fmt::format("processes of this node survive SIGKILL since {} s", kUnkillableAfter.count()),
               {}});
    state_.phase = Phase::kDone;
}

}  // namespace

std::string_view to_string(Phase phase) {
    switch (phase) {
        case Phase::kIdle: return "idle";
        case Phase::kRunning: return "running";
        case Phase::kStopping: return "stopping";
        case Phase::kSucceeded: return "succeeded";
        case Phase::kDone: return "done";
    }
    return "?";
}

Step step(State state, const Event& event, TimePoint now) {
    if (state.phase == Phase::kDone) return {std::move(state), {}, ""};
    Transition transition(std::move(state), now);
    std::visit([&](const auto& happened) { transition.on(happened); }, event);
    return std::move(transition).take();
}

}  // namespace ddprun::agent
