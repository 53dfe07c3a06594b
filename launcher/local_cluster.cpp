#include "launcher/local_cluster.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <map>

#include "agent/guard/children.hpp"
#include "agent/last_signals.hpp"
#include "agent/verdict_text.hpp"
#include "common/clock.hpp"
#include "common/error.hpp"
#include "common/signals.hpp"
#include "common/unique_fd.hpp"
#include "launcher/option_values.hpp"

namespace ddprun::launcher {
namespace {

constexpr std::array kForwarded{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
constexpr std::chrono::seconds kAfterGrace{
    10};                                    // for a node whose daemon is gone to end, beyond the grace of its workers
constexpr std::chrono::seconds kTooFew{5};  // for the daemon to end when the job is over, and with it the nodes

/// The launcher's part of one emulated cluster, from the first fork to the last wait.
class Cluster {
public:
    explicit Cluster(const LocalCluster& cluster) : cluster_(cluster), lifeline_(cluster.daemon_lifeline) {
        // What a node leaves behind when its guard and agent are killed together becomes our child, to be ended here.
        ::prctl(PR_SET_CHILD_SUBREAPER, 1);
        ignore_failed_writes();
        listen_for_signals();
        collect_last_words();
    }
    Cluster(const Cluster&) = delete;
    Cluster& operator=(const Cluster&) = delete;
    ~Cluster() {
        end_everything();
        ::sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
    }

    int run() {
        for (int index = 0; index < cluster_.nodes; ++index) start_node(index);
        while (!running_.empty()) {
            wait_for_something();
            reap();
            end_orphans();
        }
        end_everything();
        const int code = say_verdict();
        agent::end_on_stop_signal(code);  // until now they have waited; the job's end is known
        return code;
    }

private:
    void listen_for_signals() {
        sigset_t wanted;
        ::sigemptyset(&wanted);
        ::sigaddset(&wanted, SIGCHLD);
        for (const int signal : kForwarded) {
            const bool nohup = signal == SIGHUP && is_ignored(signal);
            if (!nohup) ::sigaddset(&wanted, signal);
        }
        ::sigprocmask(SIG_BLOCK, &wanted, &mask_before_);
        signals_ = UniqueFd(::signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
        if (!signals_) throw ErrorException(system_error("cannot listen for signals", errno));
    }

    /// A file in memory, open for appending: every node leaves there what is to be printed at the end, so that it is
    /// there whichever node is killed. Without it the exit code must do.
    void collect_last_words() {
        last_words_ = UniqueFd(::memfd_create("ddprun-last-words", 0));
        if (last_words_) ::fcntl(last_words_.get(), F_SETFL, O_APPEND);
    }

    void start_node(int index) {
        const LocalNode node{index, cluster_.endpoint, last_words_.get()};
        std::vector<std::string> words{"ddprun", "--as-local-node", to_string(node)};
        words.insert(words.end(), cluster_.arguments.begin(), cluster_.arguments.end());
        std::vector<char*> argv;
        for (std::string& word : words) argv.push_back(word.data());
        argv.push_back(nullptr);

        std::fflush(nullptr);
        const pid_t launcher = ::getpid();
        const pid_t pid = ::fork();
        if (pid < 0) throw ErrorException(system_error(fmt::format("cannot start {}", local_node_name(index)), errno));
        if (pid == 0) become_node(argv.data(), launcher);
        running_.emplace(pid, index);
    }

    [[noreturn]] void become_node(char* const* argv, pid_t launcher) const {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() != launcher) ::_exit(exit_code::kInternal);  // it died before we asked to be told
        heed_failed_writes();
        ::setpgid(0, 0);  // Ctrl-C comes once, through the launcher
        ::sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
        ::execv("/proc/self/exe", argv);
        ::_exit(exit_code::kInternal);
    }

    void wait_for_something() {
        std::array<pollfd, 2> sources{pollfd{signals_.get(), POLLIN, 0}, pollfd{lifeline_, POLLIN, 0}};
        const TimePoint next = std::min(end_job_at_, kill_stragglers_at_);
        int timeout_ms = -1;
        if (next != TimePoint::max()) {
            const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now());
            timeout_ms =
                static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 60'000));  // at most a look a minute
        }
        const int ready = ::poll(sources.data(), sources.size(), timeout_ms);
        if (ready > 0 && sources[1].revents != 0) daemon_ended();
        if (Clock::now() >= end_job_at_) end_job();
        if (Clock::now() >= kill_stragglers_at_) kill_stragglers();
        forward_signals();
    }

    /// The daemon ends with the job. Nodes end by themselves then; one that is stopped or wedged never would.
    void daemon_ended() {
        lifeline_ = -1;  // poll() ignores it from here on
        end_job_at_ = TimePoint::max();
        kill_stragglers_at_ = Clock::now() + cluster_.grace + kAfterGrace;
    }

    void kill_stragglers() {
        kill_stragglers_at_ = TimePoint::max();
        for (const auto& [pid, index] : running_) {
            spdlog::warn("{} did not end although the job is over: killing it", local_node_name(index));
            ::kill(pid, SIGKILL);
        }
    }

    /// Real nodes would wait for a replacement of the lost one; here nobody could come.
    void end_job() {
        end_job_at_ = TimePoint::max();
        too_few_ = true;
        left_ = running_.size();
        for (const auto& [pid, index] : running_) ::kill(pid, SIGTERM);
    }

    void forward_signals() {
        signalfd_siginfo info{};
        while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
            const int signal = static_cast<int>(info.ssi_signo);
            if (signal == SIGCHLD) continue;  // reap() looks for itself: one SIGCHLD may stand for several children
            const bool ends_job =
                (signal != SIGUSR1 && signal != SIGUSR2) || std::ranges::count(cluster_.drain_signals, signal) > 0;
            if (ends_job && told_to_end_ == 0) {
                told_to_end_ = signal;
                stopped_nodes_ = running_.size();
            }
            for (const auto& [pid, index] : running_) ::kill(pid, signal);
        }
    }

    void reap() {
        int status = 0;
        for (pid_t pid = 0; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
            const auto node = running_.find(pid);
            if (node == running_.end()) continue;  // an orphan that end_orphans() has killed
            ends_.push_back(exit_status_from_wait(status));
            std::string how = fmt::format("{} {}", local_node_name(node->second), to_string(ends_.back()));
            if (ends_.back().kind == ExitStatus::Kind::kSignaled) spdlog::warn("{}", how);
            if (!too_few_ && ends_.back().exit_code() != 0) gone_.push_back(std::move(how));
            running_.erase(node);
        }
        watch_for_too_few();
    }

    /// With too few nodes and a daemon that is still there the job is not over, it waits.
    void watch_for_too_few() {
        const bool too_few = running_.size() < static_cast<std::size_t>(cluster_.min_nodes);
        if (told_to_end_ != 0)
            end_job_at_ = TimePoint::max();  // they may need their grace, which a second signal would cut short
        else if (too_few && lifeline_ >= 0 && !too_few_)
            end_job_at_ = std::min(end_job_at_, Clock::now() + kTooFew);
    }

    /// Kills every child that is no node: it can only have come to us because its guard is dead.
    void end_orphans() {
        std::array<pid_t, 256> children{};  // what does not fit is met in the next round
        int count = agent::list_children(children.data(), children.size());
        if (count < 0) count = agent::list_children_by_scan(children.data(), children.size());
        for (int i = 0; i < count; ++i) {
            if (!running_.contains(children[i])) ::kill(children[i], SIGKILL);
        }
    }

    /// Kills and reaps until there is no child left: the last orphans of a normal end, or all when something was
    /// thrown.
    void end_everything() {
        for (const auto& [pid, index] : running_) ::kill(pid, SIGKILL);
        running_.clear();
        for (const TimePoint give_up = Clock::now() + kAfterGrace; Clock::now() < give_up;) {
            end_orphans();
            pid_t ended = 0;
            while ((ended = ::waitpid(-1, nullptr, WNOHANG)) > 0) {
            }
            if (ended < 0) return;  // ECHILD
            pollfd child_ended{signals_.get(), POLLIN, 0};
            ::poll(&child_ended, 1, 10);
            signalfd_siginfo ignored{};
            while (::read(signals_.get(), &ignored, sizeof ignored) > 0) {
            }
        }
        spdlog::warn(
            "a process of the job survives SIGKILL (it waits in the kernel, see its state D in ps); leaving it behind");
    }

    /// Prints once for all nodes what each of them would have printed on a machine of its own.
    int say_verdict() const {
        const int code = too_few_ ? exit_code::kInfrastructure : cluster_exit_code(ends_);
        const std::string last_words = too_few_ ? too_few_verdict() : last_words_of(read_last_words());
        const auto of_nodes = [](std::size_t count) { return fmt::format("{} node{}", count, count == 1 ? "" : "s"); };
        if (told_to_end_ != 0 && code == exit_code::kSignalBase + told_to_end_) {
            const std::size_t workers = stopped_nodes_ * static_cast<std::size_t>(cluster_.workers_per_node);
            spdlog::error("interrupted by {}: {} worker{} stopped on {}", signal_name(told_to_end_), workers,
                          workers == 1 ? "" : "s", of_nodes(stopped_nodes_));
        } else if (!last_words.empty() && code != 0) {
            std::fputs(last_words.c_str(), stderr);  // fmt::print throws when nobody reads: the exit code counts more
        } else if (code == exit_code::kInfrastructure && lifeline_ < 0) {  // each node has said what became of it
            spdlog::error(
                "the rendezvous daemon of the job, ddprund, ended before the job: look for who or what killed it "
                "(`dmesg | grep -i oom`), then start the job again");
        } else if (code != 0) {
            spdlog::error("the job ended with exit code {}, and no node is left that could say why", code);
        }
        return code;
    }

    std::string too_few_verdict() const {
        coordinator::Verdict verdict;
        verdict.outcome = coordinator::Outcome::kInfrastructure;
        verdict.exit_code = exit_code::kInfrastructure;
        const bool fixed = cluster_.min_nodes == cluster_.nodes;
        verdict.reason = fmt::format(
            "{}{} of {} emulated nodes {} left, --nnodes {} needs {}, and nobody takes the place of an emulated node",
            gone_.empty() ? "" : fmt::format("{}; ", fmt::join(gone_, ", ")), left_, cluster_.nodes,
            left_ == 1 ? "is" : "are",
            fixed ? fmt::to_string(cluster_.nodes) : fmt::format("{}:{}", cluster_.min_nodes, cluster_.nodes),
            cluster_.min_nodes);
        return agent::format_verdict(verdict, cluster_.program_name);
    }

    std::string read_last_words() const {
        std::string texts;
        std::array<char, 4096> piece{};
        ssize_t got = 0;
        while ((got = ::pread(last_words_.get(), piece.data(), piece.size(), static_cast<off_t>(texts.size()))) > 0) {
            texts.append(piece.data(), static_cast<std::size_t>(got));
        }
        return texts;
    }

    const LocalCluster& cluster_;
    int lifeline_;  ///< -1 once the daemon is gone
    sigset_t mask_before_{};
    UniqueFd signals_;
    std::map<pid_t, int> running_;  ///< pid of a node's first process → its index
    std::vector<ExitStatus> ends_;  ///< in the order in which nodes ended
    UniqueFd last_words_;
    std::vector<std::string> gone_;  ///< nodes that ended before the others were told to, and how
    int told_to_end_ = 0;            ///< by this signal from outside
    std::size_t stopped_nodes_ = 0;  ///< how many there were then
    bool too_few_ = false;           ///< end_job() was called …
    std::size_t left_ = 0;           ///< … with so many nodes left
    TimePoint end_job_at_ = TimePoint::max();
    TimePoint kill_stragglers_at_ = TimePoint::max();
};

}  // namespace

int run_local_cluster(const LocalCluster& cluster) { return Cluster(cluster).run(); }

std::string local_node_name(int index) { return fmt::format("node{}", index); }

std::string last_words_of(const std::string& texts) {
    const auto end = texts.rfind('\0');
    if (end == std::string::npos || end == 0) return "";
    const auto before = texts.rfind('\0', end - 1);
    const std::size_t begin = before == std::string::npos ? 0 : before + 1;
    return texts.substr(begin, end - begin);
}

int cluster_exit_code(const std::vector<ExitStatus>& ends) {
    const auto by_itself = [](const ExitStatus& end) { return end.kind == ExitStatus::Kind::kExited; };
    const auto last = std::find_if(ends.rbegin(), ends.rend(), by_itself);
    return last != ends.rend() ? last->exit_code() : ends.back().exit_code();
}

}  // namespace ddprun::launcher
