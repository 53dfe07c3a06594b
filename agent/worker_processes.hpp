#pragma once
// WorkerProcesses: the processes of one worker group on this node: the workers, their groups, and strays, which are
// descendants of workers that lost their parent and were handed to this process, a child subreaper. One thread; at most
// one object at a time, because every child process that is no worker counts as a stray.

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/board/worker_board.hpp"
#include "agent/child_process.hpp"
#include "agent/error_file.hpp"
#include "agent/oom.hpp"
#include "agent/output/worker_stream.hpp"
#include "common/clock.hpp"
#include "common/ids.hpp"
#include "rendezvous/coordinator/messages.hpp"

namespace ddprun::agent {

/// What one worker is started with.
struct WorkerSpec {
    std::vector<std::string> argv;
    std::vector<std::string> environment;
    Route out;
    Route err;
    std::optional<ErrorFile> error_file;
    std::optional<WorkerBoard> board;
};

class WorkerProcesses {
public:
    struct Callbacks {
        /// Once per started worker. `unasked`: it ended without having got the group's signal, or by a SIGKILL not
        /// ours.
        std::function<void(LocalRank, const ExitStatus&, bool unasked)> exited;
        std::function<void()> gone;  ///< once, after every `exited`: nothing is left
    };

    WorkerProcesses(boost::asio::io_context& io, Callbacks callbacks, OomWatch oom_watch = OomWatch());
    /// Kills what is left of the workers' groups; strays with a session of their own are for the guard then.
    ~WorkerProcesses();
    WorkerProcesses(const WorkerProcesses&) = delete;
    WorkerProcesses& operator=(const WorkerProcesses&) = delete;

    /// Starts the next worker: local rank 0, then 1, …. Errors: of ChildProcess::start, or no pipe to be had.
    [[nodiscard]] Result<void> start(WorkerSpec spec);
    /// No worker will be started any more: from now on, and even in this call, `gone` may be called.
    void all_started();

    /// To every process of the group and to every stray, those that turn up later included. A worker that is ending
    /// by itself, for it has written a traceback or an error file, or has let go of its groups, gets it a second
    /// later unless it is SIGKILL: cut short, it would not tell its exit code, and pass for a victim.
    void signal_group(int number);
    void notify_workers(int number);

    [[nodiscard]] pid_t pid(LocalRank rank) const { return worker(rank).pid; }
    /// The end of a worker's stderr, with what it wrote last.
    [[nodiscard]] std::vector<std::string> last_lines(LocalRank rank);
    /// When it was first seen to fail by itself: its last traceback, or what failing_ago() sees on its board, unless
    /// that is long past.
    [[nodiscard]] std::optional<TimePoint> failing_since(LocalRank rank);
    /// Whether the kernel killed it, for memory had run out.
    [[nodiscard]] coordinator::OomKill oom(LocalRank rank) const { return worker(rank).oom; }
    /// What a worker left in its error file; empty when it left nothing that can be read.
    [[nodiscard]] std::string error_message(LocalRank rank) const;

    /// What a worker's board says; see WorkerBoard::view(). Empty when there is no such worker.
    [[nodiscard]] coordinator::BoardView board(LocalRank rank, std::size_t most) const;
    /// The board and the state of the process; rank, host and clock are for the caller to fill in.
    [[nodiscard]] coordinator::RankBoard rank_board(LocalRank rank, std::size_t most) const;
    /// Of its trainer, as process_state() has it.
    [[nodiscard]] std::string process(LocalRank rank) const;

    /// Pids of what is left: workers that run, and strays.
    [[nodiscard]] std::vector<pid_t> remaining() const;
    /// Stops waiting for what cannot be killed.
    void abandon();

private:
    struct Worker {
        pid_t pid = -1;
        std::optional<ChildProcess> process;  ///< empty once reaped
        std::optional<ExitStatus> status;
        TimePoint ended_at;
        coordinator::OomKill oom = coordinator::OomKill::kUnknown;
        bool told = false;           ///< it got the group's signal while it ran
        pid_t told_trainer = -1;     ///< the trainer's process then
        std::string process_before;  ///< and its state before that, for the signal makes a stopped one go on
        TimePoint told_at;           ///< when that was
        bool withheld = false;       ///< it has ended, but a process that traces it has not let us see how
        std::shared_ptr<WorkerStream> out;
        std::shared_ptr<WorkerStream> err;
        std::optional<ErrorFile> error_file;
        std::optional<WorkerBoard> board;
    };

    [[nodiscard]] const Worker& worker(LocalRank rank) const {
        return *workers_.at(static_cast<std::size_t>(number(rank)));
    }
    [[nodiscard]] std::vector<pid_t> strays() const;
    [[nodiscard]] static bool has_ended(const Worker& worker);
    [[nodiscard]] static bool ends_by_itself(Worker& worker);
    [[nodiscard]] static std::optional<TimePoint> sign_of_failure(Worker& worker);
    [[nodiscard]] static pid_t trainer_of(const Worker& worker);
    static void remember_process(Worker& worker);
    void tell(Worker& worker) const;
    void tell_the_spared();
    void on_exit(LocalRank rank);
    void watch_children();
    void forget_old_kills();
    void sweep();
    void check_gone();

    boost::asio::io_context& io_;
    Callbacks callbacks_;
    OomWatch oom_watch_;
    std::vector<std::unique_ptr<Worker>> workers_;
    std::set<pid_t> told_;  ///< strays that got `stop_signal_`
    int stop_signal_ = 0;   ///< the latest that the group got; 0: none
    bool all_started_ = false;
    bool gone_ = false;
    boost::asio::signal_set child_changed_;
    boost::asio::steady_timer sweep_timer_;
    boost::asio::steady_timer spared_timer_;
    boost::asio::steady_timer news_timer_;
    std::shared_ptr<int> alive_ = std::make_shared<int>();  ///< handlers that are already queued look at it
};

/// Descendants that lose their parent become our children instead of init's. Call once, before the first worker.
void adopt_strays();

}  // namespace ddprun::agent
