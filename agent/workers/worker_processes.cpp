#include "agent/workers/worker_processes.hpp"

#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <utility>

#include "agent/guard/descendants.hpp"

namespace ddprun::agent {
namespace {

using boost::system::error_code;

/// The interval of sweeps during a stop: the kernel sends no SIGCHLD when a stray becomes a child of this process.
constexpr std::chrono::milliseconds kSweepInterval{10};
/// The times of a program that writes its steps to a file are known to within this.
constexpr std::chrono::milliseconds kStepInterval{100};
/// Processes that are left at that time after SIGKILL count as a fork bomb, which is then killed at once, again and
/// again. In all other cases it is enough to kill the groups and strays.
constexpr std::chrono::milliseconds kKillAgainAfter{200};
constexpr std::chrono::seconds kKillAgainInterval{1};
/// The time for which the fence alone may show a process after the last child was reaped: Linux 6.19 reports the end of
/// a group's last process a moment later.
constexpr std::chrono::seconds kFenceTime{1};
/// The minimum time between sweeps because of SIGCHLD: each lists all children, so one for each of many workers that
/// end at once would take a time that grows with the square of their number.
constexpr std::chrono::milliseconds kMinSweepInterval{2};

}  // namespace

WorkerProcesses::WorkerProcesses(boost::asio::io_context& io, Callbacks callbacks, OomWatch oom_watch,
                                 ControlGroup* fence)
    : io_(io),
      callbacks_(std::move(callbacks)),
      oom_watch_(std::move(oom_watch)),
      fence_(fence),
      child_changed_(io, SIGCHLD),
      window_changed_(io, SIGWINCH),
      step_timer_(io),
      sweep_timer_(io),
      oom_timer_(io) {
    watch_children();
    watch_window();
    forget_old_kills();
}

WorkerProcesses::~WorkerProcesses() = default;

Result<void> WorkerProcesses::start(WorkerSpec spec) {
    if (fence_ != nullptr) {
        spec.group_fd = fence_->fd();
        spec.joins_group = fence_->has_to_be_joined();
    }
    Result<std::unique_ptr<Worker>> started = Worker::start(io_, std::move(spec));
    if (!started) return started.error();
    const LocalRank rank{static_cast<int>(workers_.size())};
    (*started)->async_wait([this, rank, alive = std::weak_ptr<int>(alive_)] {
        if (!alive.expired()) on_exit(rank);
    });
    workers_.push_back(std::move(*started));
    return {};
}

void WorkerProcesses::all_started() {
    all_started_ = true;
    look_at_step_files();
    reap_if_empty();  // none may have started, or all may have ended already
}

void WorkerProcesses::on_exit(LocalRank rank) {
    Worker& ended = worker(rank);
    if (!ended.take_status()) return;  // sweep() tries again
    ended.look_at_step_file();
    const ExitStatus& status = *ended.status();
    const bool killed_by_others =
        status.kind == ExitStatus::Kind::kSignaled && status.number == SIGKILL && group_signal_ != SIGKILL;
    if (killed_by_others || status.exit_code() == exit_code::kSignalBase + SIGKILL)
        ended.set_oom(oom_watch_.classify_kill());
    callbacks_.exited(rank, status, !ended.was_signalled() || killed_by_others);
    reap_if_empty();
}

bool WorkerProcesses::signal_group(int signal) {
    group_signal_ = signal;
    if (signal == SIGKILL) {
        // First, because a worker that ends before it is known to be signalled seems to have ended by itself.
        for (const auto& worker : workers_)
            if (!worker->is_reaped()) worker->note_signal();
        if (fence_ != nullptr) fence_->kill();
        kill_again_at_ = Clock::now() + kKillAgainAfter;
    }
    strays_.set_signal(signal);
    bool spared = false;
    for (const auto& worker : workers_) {
        if (worker->is_reaped()) continue;
        if (signal != SIGKILL && !worker->was_signalled() && worker->is_ending_by_itself())
            spared = true;
        else
            worker->signal_group(signal);
    }
    sweep();
    return spared;
}

void WorkerProcesses::signal_spared() {
    for (const auto& worker : workers_) {
        if (!worker->is_reaped() && !worker->was_signalled()) worker->signal_group(group_signal_);
    }
}

void WorkerProcesses::notify_workers(int signal) {
    for (const auto& worker : workers_) worker->notify(signal);
}

void WorkerProcesses::set_preemption(const PreemptionState& words) {
    for (const auto& worker : workers_) worker->set_preemption(words);
}

std::uint64_t WorkerProcesses::max_stop_calls() const {
    std::uint64_t most = 0;
    for (const auto& worker : workers_) most = std::max(most, worker->stop_calls());
    return most;
}

void WorkerProcesses::look_at_step_files() {
    for (const auto& worker : workers_) worker->look_at_step_file();
    step_timer_.expires_after(kStepInterval);
    step_timer_.async_wait([this, alive = std::weak_ptr<int>(alive_)](const error_code& error) {
        if (!error && !alive.expired() && !reaped_) look_at_step_files();  // it may be queued already
    });
}

StepTimes WorkerProcesses::steps() const {
    StepTimes all;
    for (const auto& worker : workers_) all = combined(all, worker->steps());
    return all;
}

/// Sends a signal that ends no process to the workers' process groups and to the strays.
void WorkerProcesses::send_to_all(int signal) const {
    for (const auto& worker : workers_) worker->send_to_group(signal);
    for (const pid_t stray : Strays::list(unreaped_workers())) ::kill(stray, signal);
}

/// Kills processes that are left after SIGKILL, and those that they have started since.
void WorkerProcesses::kill_again() {
    if (Clock::now() < kill_again_at_) return;
    if (fence_ != nullptr)
        fence_->kill();  // reaches processes that are forking
    else
        freeze_and_kill_descendants({});
    kill_again_at_ = Clock::now() + kKillAgainInterval;
}

/// Takes exit statuses that were withheld, reaps strays and, while the group is stopping, signals new ones.
void WorkerProcesses::sweep() {
    swept_at_ = Clock::now();
    for (std::size_t i = 0; i < workers_.size(); ++i) {
        if (workers_[i]->is_status_withheld()) on_exit(LocalRank{static_cast<int>(i)});
    }
    strays_.sweep(unreaped_workers());
    reap_if_empty();
    if (group_signal_ == 0 || reaped_) return;
    kill_again();
    sweep_at(swept_at_ + kSweepInterval);
}

void WorkerProcesses::sweep_at(TimePoint when) {
    sweep_timer_.expires_at(when);
    sweep_timer_.async_wait([this, alive = std::weak_ptr<int>(alive_)](const error_code& error) {
        if (!error && !alive.expired()) sweep();  // an error means that a later sweep is due instead
    });
}

void WorkerProcesses::watch_children() {
    child_changed_.async_wait([this, alive = std::weak_ptr<int>(alive_)](const error_code& error, int) {
        if (error || alive.expired()) return;
        if (const TimePoint next = swept_at_ + kMinSweepInterval; Clock::now() < next)
            sweep_at(next);
        else
            sweep();
        watch_children();
    });
}

void WorkerProcesses::resume() {
    send_to_all(SIGCONT);
    fit_terminals();  // the shell alone gets the SIGWINCH of the time in between
}

/// Follows changes of the console's size. The kernel reports them to the guard, which forwards signals.
void WorkerProcesses::watch_window() {
    window_changed_.async_wait([this, alive = std::weak_ptr<int>(alive_)](const error_code& error, int) {
        if (error || alive.expired()) return;
        fit_terminals();
        watch_window();
    });
}

void WorkerProcesses::fit_terminals() {
    for (const auto& worker : workers_) worker->fit_terminals();
}

/// Repeats OomWatch::forget_old_kills() until the group is reaped.
void WorkerProcesses::forget_old_kills() {
    oom_watch_.forget_old_kills(Clock::now());
    oom_timer_.expires_after(oom_watch_.recent_period());
    oom_timer_.async_wait([this, alive = std::weak_ptr<int>(alive_)](const error_code& error) {
        if (!error && !alive.expired() && !reaped_) forget_old_kills();  // it may be queued already
    });
}

/// Returns sorted pids: with thousands of workers a linear search for each child would be too slow.
std::vector<pid_t> WorkerProcesses::unreaped_workers() const {
    std::vector<pid_t> pids;
    for (const auto& worker : workers_) {
        if (!worker->is_reaped()) pids.push_back(worker->pid());
    }
    std::ranges::sort(pids);
    return pids;
}

/// Returns whether all workers have ended and /proc lists no stray.
bool WorkerProcesses::is_empty() const {
    const bool all_ended =
        std::ranges::all_of(workers_, [](const auto& worker) { return worker->status().has_value(); });
    return all_started_ && all_ended && Strays::list(unreaped_workers()).empty();
}

/// Does nothing while a worker runs or /proc lists a stray. Otherwise reaps the workers, and calls `reaped` if the
/// kernel knows no child then (waitid), because a list from /proc may miss one, and the fence is empty. Workers are not
/// reaped earlier: signals must reach the living members of their process groups.
void WorkerProcesses::reap_if_empty() {
    if (reaped_ || !is_empty()) return;
    for (const auto& worker : workers_) worker->reap();
    siginfo_t info{};
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD) return;
    if (fence_ != nullptr && fence_->is_populated()) return wait_for_fence();
    for (const auto& worker : workers_) worker->finish_output();
    reaped_ = true;
    child_changed_.cancel();
    window_changed_.cancel();
    step_timer_.cancel();
    sweep_timer_.cancel();
    oom_timer_.cancel();
    callbacks_.reaped();
}

/// Sweeps again until the fence is empty. Kills processes that stay in it, which others have moved there: no SIGCHLD
/// reports their end, and this process cannot find them as children.
void WorkerProcesses::wait_for_fence() {
    const TimePoint now = Clock::now();
    if (!only_fence_since_) only_fence_since_ = now;
    if (now >= *only_fence_since_ + kFenceTime) fence_->kill();
    sweep_at(now + kSweepInterval);
}

const Worker* WorkerProcesses::find(LocalRank rank) const {
    const auto index = static_cast<std::size_t>(number(rank));
    return index < workers_.size() ? workers_[index].get() : nullptr;
}

protocol::FlightRecord WorkerProcesses::flight_record(LocalRank rank, std::size_t max_operations) const {
    const Worker* const started = find(rank);
    return started != nullptr ? started->flight_record(max_operations) : protocol::FlightRecord();
}

protocol::RankRecord WorkerProcesses::rank_record(LocalRank rank, std::size_t max_operations) const {
    if (const Worker* const started = find(rank)) return started->rank_record(max_operations);
    protocol::RankRecord record;
    record.process = ProcessState::kNotStarted;
    return record;
}

ProcessState WorkerProcesses::process_state(LocalRank rank) const {
    const Worker* const started = find(rank);
    return started != nullptr ? started->process_state() : ProcessState::kEnded;
}

std::vector<pid_t> WorkerProcesses::pids() const {
    std::vector<pid_t> pids;
    for (const auto& worker : workers_) pids.push_back(worker->shown_pid());
    return pids;
}

std::vector<pid_t> WorkerProcesses::remaining() const {
    std::vector<pid_t> pids = Strays::list(unreaped_workers());
    for (const auto& worker : workers_) {
        if (!worker->status()) pids.push_back(worker->pid());
    }
    return pids;
}

void WorkerProcesses::abandon() {
    for (const auto& worker : workers_) worker->abandon();
}

}  // namespace ddprun::agent
