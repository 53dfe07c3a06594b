#pragma once
// Worker: owns one worker of this node: its process, its output streams, its error file, its flight record, and the
// evidence about its end. Owned by WorkerProcesses, which decides when to signal and reap it. One thread.

#include <sys/types.h>

#include <boost/asio/io_context.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/output/worker_stream.hpp"
#include "agent/recorder/worker_flight_record.hpp"
#include "agent/workers/child_process.hpp"
#include "agent/workers/error_file.hpp"
#include "agent/workers/step_file.hpp"
#include "agent/workers/worker_evidence.hpp"
#include "common/clock.hpp"
#include "common/system/unique_fd.hpp"
#include "rendezvous/protocol/messages.hpp"

namespace ddprun::agent {

/// All that one worker is started with.
struct WorkerSpec {
    std::vector<std::string> argv;
    std::vector<std::string> environment;
    Route out;
    Route err;
    std::optional<ErrorFile> error_file;
    std::optional<WorkerFlightRecord> record;
    std::optional<StepFile> step_file;
    UniqueFd secret = {};  ///< as of make_secret_memory(), which the worker inherits; invalid: none
    CpuMask cpus = {};     ///< as in ChildSpec
    int group_fd = -1;     ///< ChildSpec::group_fd
    bool joins_group = false;
};

class Worker {
public:
    /// Starts a worker and reads its output from now on. Errors: of ChildProcess::start, or no pipe is left.
    [[nodiscard]] static Result<std::unique_ptr<Worker>> start(boost::asio::io_context& io, WorkerSpec spec);

    [[nodiscard]] pid_t pid() const { return pid_; }
    /// Returns its pid as the user sees it (host_pid.hpp); also after it was reaped.
    [[nodiscard]] pid_t shown_pid() const { return shown_pid_; }
    /// Calls `ended` once, from the io_context, when the process has ended.
    void async_wait(std::function<void()> ended) { process_->async_wait(std::move(ended)); }
    /// Takes the exit status of a process that has ended. Returns false if a process that traces it withholds it: the
    /// kernel sends SIGCHLD when the tracer lets go, so try again then.
    bool take_status();
    [[nodiscard]] const std::optional<ExitStatus>& status() const { return status_; }
    [[nodiscard]] bool is_status_withheld() const { return status_withheld_; }

    /// Notes that the worker is signalled now, unless it has ended.
    void note_signal();
    /// Sends `signal` to the worker and its process group, and lets a stopped process go on so that it can obey.
    void signal_group(int signal);
    /// Sends a signal that ends no process to its process group.
    void send_to_group(int signal) const;
    /// Returns whether signal_group() was called while the worker ran.
    [[nodiscard]] bool was_signalled() const { return signalled_.has_value(); }
    /// Sends `signal` to the worker's process alone, if it runs and does not die of it.
    void notify(int signal);
    /// Writes what the worker is to know about a preemption.
    void set_preemption(const PreemptionState& words) {
        if (record_) record_->set(words);
    }
    /// Returns how often it has called agree_to_stop().
    [[nodiscard]] std::uint64_t stop_calls() const { return record_ ? record_->stop_calls() : 0; }
    /// Notes the step that it has written into its step file, if it has written one.
    void look_at_step_file();
    /// Returns how far its training has come.
    [[nodiscard]] StepTimes steps() const { return record_ ? record_->steps() : StepTimes(); }
    /// Returns whether the worker is about to end without a signal: it has written a traceback or an error file, has
    /// aborted a group, or has left all its groups.
    [[nodiscard]] bool is_ending_by_itself();

    void set_oom(protocol::OomKill oom) { oom_ = oom; }
    /// Returns all that is known about the worker and its end.
    [[nodiscard]] WorkerEvidence evidence();
    /// Returns the text of its error file; empty: it has written none. Errors: those of ErrorFile::read().
    [[nodiscard]] Result<std::string> error_text(std::size_t max_bytes) const;
    /// Returns the newest `max_operations` of its flight record; see WorkerFlightRecord::view().
    [[nodiscard]] protocol::FlightRecord flight_record(std::size_t max_operations) const;
    /// Returns the flight record and the state of the process. The caller fills in rank, host and clock.
    [[nodiscard]] protocol::RankRecord rank_record(std::size_t max_operations) const;
    /// Returns the state of its trainer as of ddprun::process_state().
    [[nodiscard]] ProcessState process_state() const;

    /// Gives the pid back to the kernel; only after the process has ended.
    void reap();
    [[nodiscard]] bool is_reaped() const { return !process_; }
    /// Passes on the rest of its output.
    void finish_output();
    /// Fits its pseudo terminals to the console, and sends SIGWINCH to its process group if their size has changed.
    void fit_terminals();
    /// Stops waiting for a process that survives SIGKILL.
    void abandon();

private:
    /// The state of the process when it got the group's signal, which also continues a stopped process. A diagnosis of
    /// why the group is being stopped comes later, and needs to know which process was stopped before.
    struct Signalled {
        TimePoint at;
        pid_t trainer = -1;
        pid_t shown_trainer = -1;
        std::optional<ProcessState> state;  ///< empty: it had ended
    };

    Worker(ChildProcess process, WorkerSpec& spec);
    [[nodiscard]] bool has_ended() const { return status_withheld_ || process_->status(); }
    [[nodiscard]] pid_t trainer() const;
    [[nodiscard]] std::optional<Duration> recently_failing_for();

    pid_t pid_;
    pid_t shown_pid_;
    std::optional<ChildProcess> process_;  ///< empty: reaped
    std::shared_ptr<WorkerStream> out_;    ///< null: it writes to a file itself
    std::shared_ptr<WorkerStream> err_;
    std::optional<ErrorFile> error_file_;
    std::optional<WorkerFlightRecord> record_;
    std::optional<StepFile> step_file_;
    std::optional<Signalled> signalled_;
    std::optional<ExitStatus> status_;
    bool status_withheld_ = false;
    TimePoint ended_at_;
    protocol::OomKill oom_ = protocol::OomKill::kUnknown;
};

}  // namespace ddprun::agent
