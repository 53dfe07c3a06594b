#pragma once
// WorkerProcesses: owns the processes of one worker group on this node: the workers, their process groups, and strays.
// Owned by LocalGroup. One thread; at most one object at a time, because every child process that is no worker counts
// as a stray.

#include <sys/types.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include <csignal>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/guard/control_group.hpp"
#include "agent/workers/oom.hpp"
#include "agent/workers/strays.hpp"
#include "agent/workers/worker.hpp"
#include "common/clock.hpp"
#include "common/ids.hpp"
#include "rendezvous/protocol/messages.hpp"

namespace ddprun::agent {

class WorkerProcesses {
public:
    struct Callbacks {
        /// Called once per started worker. `by_itself`: it ended without having got the group's signal, or by a SIGKILL
        /// that this agent did not send.
        std::function<void(LocalRank, const ExitStatus&, bool by_itself)> exited;
        std::function<void()> reaped;  ///< called once, after every `exited`: no process is left
    };

    /// `fence`: the control group in which the workers run; null: none. It outlives this object.
    WorkerProcesses(boost::asio::io_context& io, Callbacks callbacks, OomWatch oom_watch = OomWatch(),
                    ControlGroup* fence = nullptr);
    /// Kills the processes that are left in the workers' groups; strays with a session of their own are left to the
    /// guard.
    ~WorkerProcesses();
    WorkerProcesses(const WorkerProcesses&) = delete;
    WorkerProcesses& operator=(const WorkerProcesses&) = delete;

    /// Starts the next worker: local rank 0, then 1, …. Errors: of Worker::start.
    [[nodiscard]] Result<void> start(WorkerSpec spec);
    /// Ends the start: no further worker follows. From now on, and even in this call, `reaped` may be called.
    void all_started();

    /// Signals every process of the group and every stray. Strays that appear later get the signal as soon as they are
    /// seen. Spares workers that are ending by themselves, unless the signal is SIGKILL; returns whether there are any.
    bool signal_group(int signal);
    /// Sends the group's signal to the workers that were spared and still run.
    void signal_spared();
    /// Stops every process of the group and every stray; resume() continues them.
    void suspend() const { send_to_all(SIGSTOP); }
    void resume();
    /// Signals the workers' own processes, if they handle the signal.
    void notify_workers(int signal);
    /// Writes what the workers are to know about a preemption.
    void set_preemption(const PreemptionState& words);
    /// Returns the most calls of agree_to_stop() that a worker has made.
    [[nodiscard]] std::uint64_t max_stop_calls() const;

    /// Returns how far the training of the workers has come.
    [[nodiscard]] StepTimes steps() const;

    /// Returns all that is known about a worker that was started, and about its end.
    [[nodiscard]] WorkerEvidence evidence(LocalRank rank) { return worker(rank).evidence(); }
    /// Returns the text of the error file of a worker that was started; see Worker::error_text().
    [[nodiscard]] Result<std::string> error_text(LocalRank rank, std::size_t max_bytes) {
        return worker(rank).error_text(max_bytes);
    }
    /// Returns the newest `max_operations` of a worker's flight record; empty if it was not started.
    [[nodiscard]] protocol::FlightRecord flight_record(LocalRank rank, std::size_t max_operations) const;
    /// Returns the flight record and the state of the process. The caller fills in rank, host and clock.
    [[nodiscard]] protocol::RankRecord rank_record(LocalRank rank, std::size_t max_operations) const;
    /// Returns the state of a worker's trainer, kEnded if it was not started.
    [[nodiscard]] ProcessState process_state(LocalRank rank) const;

    /// Returns the pids of the workers that were started, by local rank.
    [[nodiscard]] std::vector<pid_t> pids() const;
    /// Returns the pids of the processes that are left: workers that run, and strays.
    [[nodiscard]] std::vector<pid_t> remaining() const;
    /// Stops waiting for processes that cannot be killed.
    void abandon();

private:
    [[nodiscard]] Worker& worker(LocalRank rank) { return *workers_.at(static_cast<std::size_t>(number(rank))); }
    [[nodiscard]] const Worker* find(LocalRank rank) const;
    [[nodiscard]] std::vector<pid_t> unreaped_workers() const;
    [[nodiscard]] bool is_empty() const;
    void send_to_all(int signal) const;
    void on_exit(LocalRank rank);
    void watch_children();
    void watch_window();
    void fit_terminals();
    void look_at_step_files();
    void forget_old_kills();
    void sweep();
    void kill_again();
    void sweep_at(TimePoint when);
    void reap_if_empty();
    void wait_for_fence();

    boost::asio::io_context& io_;
    Callbacks callbacks_;
    OomWatch oom_watch_;
    ControlGroup* fence_;
    std::vector<std::unique_ptr<Worker>> workers_;  ///< by local rank
    Strays strays_;
    int group_signal_ = 0;  ///< the latest that the group got; 0: none
    TimePoint kill_again_at_ = TimePoint::max();
    std::optional<TimePoint> only_fence_since_;  ///< no child was left then, only processes of the fence
    bool all_started_ = false;
    bool reaped_ = false;
    boost::asio::signal_set child_changed_;
    boost::asio::signal_set window_changed_;
    boost::asio::steady_timer step_timer_;
    boost::asio::steady_timer sweep_timer_;
    TimePoint swept_at_{};
    boost::asio::steady_timer oom_timer_;
    std::shared_ptr<int> alive_ = std::make_shared<int>();  ///< handlers that are already queued look at it
};

}  // namespace ddprun::agent
