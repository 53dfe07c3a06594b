#pragma once
// Transition: the step in progress. Its on() functions are the rows of docs/design/003-worker-group.md, one per event:
// those of signals to this process are in signal_rules.cpp, the others in worker_group.cpp. Private to the worker
// group: other code calls step(). Pure.

#include <algorithm>
#include <csignal>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/group/answers.hpp"
#include "agent/group/worker_group.hpp"

namespace ddprun::agent::worker_group {

/// Transition: builds one Step, for step() alone.
class Transition {
public:
    Transition(State state, TimePoint now) : state_(std::move(state)), now_(now) {}

    Step take() && {
        return {std::move(state_), std::move(actions_), std::move(reason_),
                reason_until_,     outcome_follows_,    supersedes_reasons_};
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
    void on(const NotifySignal& event);
    void on(const NotifyReceived& event);
    void on(const PreemptReceived& event);
    void on(const TimeLimitNear& event);
    void on(const Suspended& event);
    void on(const Continued& event);
    void on(const DaemonLost& event);
    void on(const GuardLost& event);
    void on(const Tick& event);
    void on(const Welcomed& event);
    void on(const LeaseEnded& event);
    void on(const HoldEnded& event);
    /// Answers the events that change no state.
    void on(const auto& event) {
        for (Action& action : answer(state_, event)) act(std::move(action));
    }

private:
    [[nodiscard]] bool leaving() const { return state_.ending || state_.stop_signal; }
    /// Returns the signal that the workers get when `signal` ends the job: itself if it is a handled one, so that a
    /// program may distinguish Ctrl-C from a scheduler's SIGTERM.
    [[nodiscard]] int for_workers(int signal) const {
        return std::ranges::count(state_.handled_signals, signal) > 0 ? signal : SIGTERM;
    }
    void act(Action action) { actions_.push_back(std::move(action)); }
    void send(protocol::AgentMessage message) { act(SendMessage{std::move(message)}); }
    void send_stopped(Generation generation) { send(protocol::GroupStopped{generation, state_.latest_step}); }

    /// Sets the reason for a stop that begins here.
    void explain_stop(std::string reason, std::optional<TimePoint> until = {}) {
        reason_ = std::move(reason);
        reason_until_ = until;
        outcome_follows_ = true;
    }

    /// Notes a signal for the workers that this process got (`step` -1) or that another node forwarded (1), `sent`
    /// then. Returns whether the workers have it already: a scheduler signals every node of a job, so that a signal
    /// which comes both ways within kSameNotification is one.
    [[nodiscard]] bool is_second_of_pair(int signal, int step, TimePoint sent);
    void start(const protocol::Assignment& assignment);
    /// Reports a failed worker at once and stops the group; the siblings get their grace.
    void fail(LocalRank rank, const ExitStatus& status, std::string why);
    /// Lets the workers go on, unless they are still held.
    void release_group();
    /// Gives up a start that is held: its remaining workers are never started.
    void end_held_start();
    /// Stops the group: sends it `signal` and gives it the grace. A later call sends nothing and does not extend the
    /// grace. Nor does a call after all workers have succeeded: the processes that they left behind have their signal
    /// already. A frozen group is killed: it cannot handle a signal, and must not run.
    void stop_group(int signal = SIGTERM);
    void kill_group();
    /// Returns whether the job's verdict says no more than that the stop signal which this node got ended the job.
    [[nodiscard]] bool is_own_interruption() const;
    /// Decides how to end. The first ending counts, but the verdict of the whole job replaces this node's own.
    void end_with(Finish finish);
    /// Performs what had to wait until no process of the group is left: ends the agent, or starts the next group.
    void settle();

    State state_;
    TimePoint now_;
    std::vector<Action> actions_;
    std::string reason_;
    std::optional<TimePoint> reason_until_;
    bool outcome_follows_ = false;
    bool supersedes_reasons_ = false;
};

}  // namespace ddprun::agent::worker_group
