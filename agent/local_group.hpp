#pragma once
// LocalGroup: owns the worker group that this node runs, its assignment and its processes. It starts the workers in
// slices, signals them, gathers the evidence about one that failed, and pushes the ends of workers into the EventQueue.
// Agent::perform() calls it. One thread, the main thread (parent-death signals follow it).

#include <sys/types.h>

#include <boost/asio/io_context.hpp>

#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/config/agent_config.hpp"
#include "agent/event_queue.hpp"
#include "agent/group/actions.hpp"
#include "agent/guard/control_group.hpp"
#include "agent/output/console.hpp"
#include "agent/output/log_writer.hpp"
#include "agent/recorder_service.hpp"
#include "agent/workers/worker_processes.hpp"
#include "agent/workers/worker_spec_builder.hpp"
#include "common/ids.hpp"
#include "rendezvous/protocol/messages.hpp"

namespace ddprun::agent {

class LocalGroup {
public:
    /// `warn` is called with a sentence about this node. The other arguments outlive this object; the node's name and
    /// the session in `config` may change.
    LocalGroup(boost::asio::io_context& io, const AgentConfig& config, Console& console, LogWriter& logs,
               EventQueue& events, std::function<void(const std::string&)> warn);

    /// Sets the run id that workers get from now on.
    void set_run_id(std::string run_id) { run_id_ = std::move(run_id); }

    /// Returns the folder of all log files of the job; empty: no files are kept.
    [[nodiscard]] std::string log_folder() const;

    /// Replaces the group before, which is reaped, and starts the first workers of the new one.
    void start(const protocol::Assignment& assignment);
    /// Starts workers from `next` on, for one time slice. StartPaused follows if some are left, SpawnFailed if one
    /// cannot be started.
    void start_more(LocalRank next);
    /// Gives up a start that is paused: its remaining workers are never started.
    void end_start() { processes_->all_started(); }

    /// Returns whether every worker of the latest group was started.
    [[nodiscard]] bool is_started() const { return processes_ && std::ssize(processes_->pids()) == config_.slots(); }
    /// Returns how far the training of the latest group has come.
    [[nodiscard]] StepTimes steps() const { return processes_ ? processes_->steps() : StepTimes(); }
    /// Returns the pids of the workers of the latest group, by local rank.
    [[nodiscard]] std::vector<pid_t> pids() const { return processes_->pids(); }

    /// WorkersSpared follows if workers that are ending by themselves are spared the signal.
    void signal(int signal);
    void signal_spared() { processes_->signal_spared(); }
    /// Stops every process of the group until resume().
    void suspend() { processes_->suspend(); }
    void resume() { processes_->resume(); }
    /// Has the kernel stop or continue the control group, if the workers have one.
    void set_frozen(bool frozen) {
        if (fence_.is_open()) fence_.set_frozen(frozen);
    }
    void notify_workers(int signal) { processes_->notify_workers(signal); }
    /// Gives the workers notice of a preemption, also those of the group that are started later. Returns the most calls
    /// of agree_to_stop() that one of them had made.
    [[nodiscard]] std::uint64_t give_notice(const protocol::Preempt& notice);
    /// Gives them the call in which they stop.
    void set_stop(std::uint64_t call);

    /// Returns the report to the daemon about a worker that failed or could not be started.
    [[nodiscard]] protocol::FailureReport failure_report(const ReportFailure& failure);
    /// Returns the text of the error file of a worker of the latest group, as failure_report() has read it; empty if
    /// there is none.
    [[nodiscard]] std::string error_text(const protocol::FailureReport& failure) const;
    /// Returns the workers whose flight records can be read; empty before the first start().
    [[nodiscard]] std::optional<RecordedWorkers> recorded() const;

    /// Stops waiting for processes that survive SIGKILL. Returns them as "71 (train, state D in nfs_wait)".
    std::vector<std::string> abandon();

private:
    void end_older_processes(Generation generation) const;
    [[nodiscard]] Result<void> start_worker(LocalRank rank);
    void keep_error_file(LocalRank rank);

    boost::asio::io_context& io_;
    const AgentConfig& config_;
    LogWriter& logs_;
    EventQueue& events_;
    std::function<void(const std::string&)> warn_;
    WorkerSpecBuilder spec_builder_;
    ControlGroup fence_;
    PreemptionState preemption_;  ///< of the latest group
    std::string run_id_;
    std::optional<protocol::Assignment> assignment_;  ///< of the latest group
    std::optional<WorkerProcesses> processes_;        ///< of the latest group
    std::map<pid_t, std::string> error_texts_;        ///< of the workers of the latest group that failed
};

}  // namespace ddprun::agent
