#include "agent/worker_processes.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <utility>

#include "agent/guard/children.hpp"
#include "agent/output/text.hpp"
#include "common/process_state.hpp"

namespace ddprun::agent {
namespace {

constexpr std::size_t kMaxChildren = 8192;      // per look; the next look sees the others
constexpr std::size_t kMaxMessageBytes = 4096;  // of an error file's message
/// While the group is stopping: a stray whose own parent ended gives us no SIGCHLD when it becomes ours.
constexpr std::chrono::milliseconds kSweepEvery{10};

/// For a worker that is ending by itself, before it is told to.
constexpr std::chrono::seconds kOwnEnd{1};
/// An older sign of failure is of something that the program survived.
constexpr std::chrono::seconds kRecentSign{10};

/// Operations of a board that show whether a program went on.
constexpr std::size_t kOperationsLooked = 16;

/// How long ago a program gave up a group, left it by an exception or got a message that did not fit, for the first
/// time since an operation has gone well: what was before that it has survived, and went on.
std::optional<Duration> failing_ago(const coordinator::BoardView& view) {
    Duration went_well_ago = Duration::max();
    for (const coordinator::BoardOperation& one : view.operations) {
        if (one.ended_ago && !one.failed) went_well_ago = std::min(went_well_ago, Duration(*one.ended_ago));
    }
    std::optional<Duration> first;
    const auto add = [&](Duration ago) {
        if (ago <= went_well_ago) first = std::max(first.value_or(Duration::zero()), ago);
    };
    for (const auto& group : view.groups) {
        if (group.aborted_ago) add(*group.aborted_ago);
        if (group.left_ago && group.left_by_exception) add(*group.left_ago);
    }
    for (const coordinator::BoardOperation& one : view.operations) {
        if (is_arrival(one) && one.mismatch && one.ended_ago) add(*one.ended_ago);
    }
    return first;
}

/// It has let go of all its groups just now.
bool is_on_its_way_out(const coordinator::BoardView& view) {
    const auto is_left = [](const coordinator::BoardGroup& group) {
        return group.left_ago && *group.left_ago <= kRecentSign;
    };
    return view.hidden_groups == 0 && std::ranges::any_of(view.groups, is_left) &&
           std::ranges::none_of(view.groups, [](const auto& group) { return group.live && !group.left_ago; });
}

struct Pipe {
    UniqueFd read_end;
    UniqueFd write_end;
};

Result<Pipe> make_pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return start_error("cannot make a pipe for its output", errno);
    return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

}  // namespace

void adopt_strays() { ::prctl(PR_SET_CHILD_SUBREAPER, 1); }

WorkerProcesses::WorkerProcesses(boost::asio::io_context& io, Callbacks callbacks, OomWatch oom_watch)
    : io_(io),
      callbacks_(std::move(callbacks)),
      oom_watch_(std::move(oom_watch)),
      child_changed_(io, SIGCHLD),
      sweep_timer_(io),
      spared_timer_(io),
      news_timer_(io) {
    watch_children();
    forget_old_kills();
}

WorkerProcesses::~WorkerProcesses() = default;

Result<void> WorkerProcesses::start(WorkerSpec spec) {
    Result<Pipe> out = make_pipe();
    if (!out) return out.error();
    Result<Pipe> err = make_pipe();
    if (!err) return err.error();
    const ChildSpec child{std::move(spec.argv), std::move(spec.environment), out->write_end.get(), err->write_end.get(),
                          spec.board ? spec.board->descriptor() : -1};
    Result<ChildProcess> process = ChildProcess::start(io_, child);
    if (!process) return process.error();

    auto started = std::make_unique<Worker>();
    started->pid = process->pid();
    started->process.emplace(std::move(*process));
    started->out = std::make_shared<WorkerStream>(io_, std::move(out->read_end), std::move(spec.out));
    started->err = std::make_shared<WorkerStream>(io_, std::move(err->read_end), std::move(spec.err));
    started->error_file = std::move(spec.error_file);
    if (spec.board) started->board.emplace(std::move(*spec.board)).handed_over();
    started->out->start();
    started->err->start();
    const LocalRank rank{static_cast<int>(workers_.size())};
    started->process->async_wait([this, rank, alive = std::weak_ptr<int>(alive_)] {
        if (!alive.expired()) on_exit(rank);
    });
    workers_.push_back(std::move(started));
    return {};
}

void WorkerProcesses::all_started() {
    all_started_ = true;
    check_gone();  // none may have started, or all may have ended already
}

void WorkerProcesses::on_exit(LocalRank rank) {
    Worker& ended = *workers_.at(static_cast<std::size_t>(number(rank)));
    ended.status = ended.process->status();
    ended.withheld = !ended.status;
    if (ended.withheld) return;  // sweep() looks again: we get a SIGCHLD when the tracer lets go
    ended.ended_at = Clock::now();
    const bool killed_by_others =
        ended.status->kind == ExitStatus::Kind::kSignaled && ended.status->number == SIGKILL && stop_signal_ != SIGKILL;
    if (killed_by_others || ended.status->exit_code() == exit_code::kSignalBase + SIGKILL)
        ended.oom = oom_watch_.one_was_killed();
    callbacks_.exited(rank, *ended.status, !ended.told || killed_by_others);
    check_gone();
}

std::vector<pid_t> WorkerProcesses::strays() const {
    std::vector<pid_t> children(kMaxChildren);
    children.resize(
        static_cast<std::size_t>(std::max(0, list_children(children.data(), static_cast<int>(kMaxChildren)))));
    std::vector<pid_t> own;  // sorted: a look that takes the square of thousands of workers would be too slow
    for (const auto& worker : workers_) {
        if (worker->process) own.push_back(worker->pid);
    }
    std::ranges::sort(own);
    std::erase_if(children, [&](pid_t child) { return std::ranges::binary_search(own, child); });
    return children;
}

void WorkerProcesses::signal_group(int number) {
    stop_signal_ = number;
    told_.clear();
    bool spared = false;
    for (const auto& worker : workers_) {
        if (!worker->process) continue;
        if (number != SIGKILL && !worker->told && ends_by_itself(*worker))
            spared = true;
        else
            tell(*worker);
    }
    if (spared) {
        spared_timer_.expires_after(kOwnEnd);
        spared_timer_.async_wait([this, alive = std::weak_ptr<int>(alive_)](const boost::system::error_code& error) {
            if (!error && !alive.expired()) tell_the_spared();
        });
    }
    sweep();
}

bool WorkerProcesses::has_ended(const Worker& worker) { return worker.withheld || worker.process->status(); }

/// A verdict on why the group is being stopped comes later, and must still know who was stopped.
void WorkerProcesses::remember_process(Worker& worker) {
    worker.told_trainer = trainer_of(worker);
    worker.told_at = Clock::now();
    std::string state = process_state(worker.told_trainer);
    if (state != "ended") worker.process_before = std::move(state);
}

void WorkerProcesses::tell(Worker& worker) const {
    if (!has_ended(worker)) {
        if (!worker.told) remember_process(worker);
        worker.told = true;
    }
    worker.process->signal_group(stop_signal_);
    worker.process->signal_group(SIGCONT);  // one that is stopped (SIGSTOP, a debugger) could not obey
}

bool WorkerProcesses::ends_by_itself(Worker& worker) {
    if (has_ended(worker)) return false;  // it has ended, and only what it has left behind is to be told
    if (worker.board && is_on_its_way_out(worker.board->view(kOperationsLooked))) return true;
    return sign_of_failure(worker) || (worker.error_file && !worker.error_file->empty());
}

/// Peers of a program that gives up a group, or leaves it by an exception, may end of that before it has said why. The
/// first of several signs: what follows on the way out is none of its own.
std::optional<TimePoint> WorkerProcesses::sign_of_failure(Worker& worker) {
    worker.err->take_available();
    const TimePoint now = Clock::now();
    std::optional<TimePoint> first = worker.err->traceback_at();
    if (first && now - *first > kRecentSign) first.reset();
    if (worker.board) {
        const auto failing = failing_ago(worker.board->view(kOperationsLooked));
        if (failing && *failing <= kRecentSign) first = std::min(first.value_or(TimePoint::max()), now - *failing);
    }
    return first;
}

void WorkerProcesses::tell_the_spared() {
    for (const auto& worker : workers_) {
        if (worker->process && !worker->told) tell(*worker);
    }
}

void WorkerProcesses::notify_workers(int number) {
    for (const auto& worker : workers_) {
        if (worker->process && !worker->status) worker->process->signal(number);
    }
}

/// Takes the ends that were withheld, reaps strays that have ended and, while the group is stopping, passes the signal
/// to those that are new.
void WorkerProcesses::sweep() {
    for (std::size_t i = 0; i < workers_.size(); ++i) {
        if (workers_[i]->withheld) on_exit(LocalRank{static_cast<int>(i)});
    }
    for (const pid_t stray : strays()) {
        if (::waitpid(stray, nullptr, WNOHANG) == stray) {
            told_.erase(stray);
        } else if (stop_signal_ != 0 && told_.insert(stray).second) {
            ::kill(stray, stop_signal_);
        }
    }
    check_gone();
    if (stop_signal_ == 0 || gone_) return;
    sweep_timer_.expires_after(kSweepEvery);
    sweep_timer_.async_wait([this, alive = std::weak_ptr<int>(alive_)](const boost::system::error_code& error) {
        if (!error && !alive.expired()) sweep();  // an error means that a later sweep is due instead
    });
}

void WorkerProcesses::watch_children() {
    child_changed_.async_wait([this, alive = std::weak_ptr<int>(alive_)](const boost::system::error_code& error, int) {
        if (error || alive.expired()) return;
        sweep();
        watch_children();
    });
}

/// Again and again, until nothing is left.
void WorkerProcesses::forget_old_kills() {
    oom_watch_.forget_old_kills(Clock::now());
    news_timer_.expires_after(oom_watch_.news());
    news_timer_.async_wait([this, alive = std::weak_ptr<int>(alive_)](const boost::system::error_code& error) {
        if (!error && !alive.expired() && !gone_) forget_old_kills();  // it may be queued already
    });
}

/// Nothing is left when every worker has ended and the kernel says that we have no child at all: a list from /proc may
/// miss one. Workers are reaped only here, for until then their groups may have living members that must be reached by
/// signals.
void WorkerProcesses::check_gone() {
    const bool all_ended = std::ranges::all_of(workers_, [](const auto& worker) { return worker->status.has_value(); });
    if (gone_ || !all_started_ || !all_ended || !strays().empty()) return;
    for (const auto& worker : workers_) {
        if (worker->process) worker->process->reap();
        worker->process.reset();
    }
    siginfo_t info{};
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD) return;
    for (const auto& worker : workers_) {
        worker->out->finish();
        worker->err->finish();
    }
    gone_ = true;
    child_changed_.cancel();
    sweep_timer_.cancel();
    spared_timer_.cancel();
    news_timer_.cancel();
    callbacks_.gone();
}

std::vector<std::string> WorkerProcesses::last_lines(LocalRank rank) {
    const Worker& ended = worker(rank);
    ended.err->take_available();  // it may have said why just before it died
    return ended.err->tail().lines();
}

std::optional<TimePoint> WorkerProcesses::failing_since(LocalRank rank) {
    return sign_of_failure(*workers_.at(static_cast<std::size_t>(number(rank))));
}

std::string WorkerProcesses::error_message(LocalRank rank) const {
    const Worker& ended = worker(rank);
    if (!ended.error_file) return "";
    const Result<std::string> text = ended.error_file->read();
    const Result<std::string> message = text ? parse_error_file(*text) : text;
    if (!message) {
        spdlog::warn("{}", message.error().message);
        return "";
    }
    return printable(*message, kMaxMessageBytes);
}

/// A script that was started as the worker waits for the trainer, which is the one to look at. What the board says is
/// believed only of a process that the worker has started.
pid_t WorkerProcesses::trainer_of(const Worker& worker) {
    const pid_t writer = worker.board ? worker.board->writer() : 0;
    return writer > 0 && (::getpgid(writer) == worker.pid || is_below(writer, worker.pid)) ? writer : worker.pid;
}

coordinator::BoardView WorkerProcesses::board(LocalRank rank, std::size_t most) const {
    const auto index = static_cast<std::size_t>(number(rank));
    return index < workers_.size() && workers_[index]->board ? workers_[index]->board->view(most)
                                                             : coordinator::BoardView();
}

coordinator::RankBoard WorkerProcesses::rank_board(LocalRank rank, std::size_t most) const {
    coordinator::RankBoard shown;
    shown.view = board(rank, most);
    const auto index = static_cast<std::size_t>(number(rank));
    if (index >= workers_.size()) {
        shown.process = "not started yet";
        return shown;
    }
    const Worker& worker = *workers_[index];
    shown.pid = worker.status ? worker.pid : trainer_of(worker);
    shown.process_before = worker.process_before;
    if (!shown.process_before.empty()) shown.process_before_ago = Clock::now() - worker.told_at;
    if (worker.status && !worker.process_before.empty()) shown.pid = worker.told_trainer;
    shown.ended = worker.status.has_value();
    if (shown.ended) shown.ended_ago = Clock::now() - worker.ended_at;
    shown.process = worker.status
                        ? fmt::format("{}, {} ago", to_string(*worker.status), coordinator::how_long(*shown.ended_ago))
                        : process_state(shown.pid);
    if (!shown.ended && shown.pid == worker.pid && shown.process == "ended") {  // a moment ago: it is not taken yet
        shown.ended = true;
        shown.ended_ago = std::chrono::nanoseconds(0);
    }
    return shown;
}

std::string WorkerProcesses::process(LocalRank rank) const {
    const auto index = static_cast<std::size_t>(number(rank));
    return index < workers_.size() && !workers_[index]->status ? process_state(trainer_of(*workers_[index])) : "ended";
}

std::vector<pid_t> WorkerProcesses::remaining() const {
    std::vector<pid_t> pids = strays();
    for (const auto& worker : workers_) {
        if (!worker->status) pids.push_back(worker->pid);
    }
    return pids;
}

void WorkerProcesses::abandon() {
    for (const auto& worker : workers_) {
        if (worker->process) worker->process->abandon();
    }
}

}  // namespace ddprun::agent
