#include "launcher/local_cluster.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spdlog/spdlog.h>
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
#include "common/clock.hpp"
#include "common/error.hpp"
#include "common/signals.hpp"
#include "common/unique_fd.hpp"
#include "launcher/option_values.hpp"

namespace ddprun::launcher {
namespace {

constexpr std::array kForwarded{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
constexpr std::chrono::seconds kAfterGrace{10};   // for a node whose daemon is gone to end, beyond the grace of its workers
constexpr std::chrono::seconds kTooFew{5};        // for the daemon to end when the job is over, and with it the nodes

/// The launcher's part of one emulated cluster, from the first fork to the last wait.
class Cluster {
public:
    explicit Cluster(const LocalCluster& cluster) : cluster_(cluster), lifeline_(cluster.daemon_lifeline) {
        // What a node leaves behind when its guard and agent are killed together becomes our child, to be ended here.
        ::prctl(PR_SET_CHILD_SUBREAPER, 1);
        ::signal(SIGPIPE, SIG_IGN);   // a reader of our output that has gone (| head) is no reason to end a job
        listen_for_signals();
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
        return verdict();
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

    void start_node(int index) {
        std::vector<std::string> words{"ddprun", "--as-local-node", to_string(LocalNode{index, cluster_.endpoint})};
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
        if (::getppid() != launcher) ::_exit(exit_code::kInternal);   // it died before we asked to be told
        ::signal(SIGPIPE, SIG_DFL);
        ::setpgid(0, 0);                                              // Ctrl-C comes once, through the launcher
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
            timeout_ms = static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 60'000));   // at most a look a minute
        }
        const int ready = ::poll(sources.data(), sources.size(), timeout_ms);
        if (ready > 0 && sources[1].revents != 0) daemon_ended();
        if (Clock::now() >= end_job_at_) end_job();
        if (Clock::now() >= kill_stragglers_at_) kill_stragglers();
        forward_signals();
    }

    /// The daemon ends with the job. Nodes end by themselves then; one that is stopped or wedged never would.
    void daemon_ended() {
        lifeline_ = -1;   // poll() ignores it from here on
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
        spdlog::error("{} of {} emulated nodes left, too few for --nnodes {}:{}: ending the job", running_.size(), cluster_.nodes,
                      cluster_.min_nodes, cluster_.nodes);
        for (const auto& [pid, index] : running_) ::kill(pid, SIGTERM);
    }

    void forward_signals() {
        signalfd_siginfo info{};
        while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
            const int signal = static_cast<int>(info.ssi_signo);
            if (signal == SIGCHLD) continue;   // reap() looks for itself: one SIGCHLD may stand for several children
            told_to_end_ = told_to_end_ || (signal != SIGUSR1 && signal != SIGUSR2);
            for (const auto& [pid, index] : running_) ::kill(pid, signal);
        }
    }

    void reap() {
        int status = 0;
        for (pid_t pid = 0; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
            const auto node = running_.find(pid);
            if (node == running_.end()) continue;   // an orphan that end_orphans() has killed
            ends_.push_back(exit_status_from_wait(status));
            if (ends_.back().kind == ExitStatus::Kind::kSignaled) {
                spdlog::warn("{} {}", local_node_name(node->second), to_string(ends_.back()));
                first_node_killed_ = first_node_killed_ || node->second == 0;
            }
            running_.erase(node);
        }
        watch_for_too_few();
    }

    /// With too few nodes and a daemon that is still there the job is not over, it waits.
    void watch_for_too_few() {
        const bool too_few = running_.size() < static_cast<std::size_t>(cluster_.min_nodes);
        if (told_to_end_) end_job_at_ = TimePoint::max();   // they may need their grace, which a second signal would cut short
        else if (too_few && lifeline_ >= 0 && !too_few_) end_job_at_ = std::min(end_job_at_, Clock::now() + kTooFew);
    }

    /// Kills every child that is no node: it can only have come to us because its guard is dead.
    void end_orphans() {
        std::array<pid_t, 256> children{};   // what does not fit is met in the next round
        int count = agent::list_children(children.data(), children.size());
        if (count < 0) count = agent::list_children_by_scan(children.data(), children.size());
        for (int i = 0; i < count; ++i) {
            if (!running_.contains(children[i])) ::kill(children[i], SIGKILL);
        }
    }

    /// Kills and reaps until there is no child left: the last orphans of a normal end, or all when something was thrown.
    void end_everything() {
        for (const auto& [pid, index] : running_) ::kill(pid, SIGKILL);
        running_.clear();
        for (const TimePoint give_up = Clock::now() + kAfterGrace; Clock::now() < give_up;) {
            end_orphans();
            pid_t ended = 0;
            while ((ended = ::waitpid(-1, nullptr, WNOHANG)) > 0) {}
            if (ended < 0) return;   // ECHILD
            pollfd child_ended{signals_.get(), POLLIN, 0};
            ::poll(&child_ended, 1, 10);
            signalfd_siginfo ignored{};
            while (::read(signals_.get(), &ignored, sizeof ignored) > 0) {}
        }
        spdlog::warn("a process of the job survives SIGKILL (it waits in the kernel, see its state D in ps); leaving it behind");
    }

    int verdict() const {
        if (too_few_) return exit_code::kInfrastructure;
        const int code = cluster_exit_code(ends_);
        if (code != 0 && first_node_killed_) {
            // The nodes leave it to the first of them to print the verdict.
            spdlog::error("the job ended with exit code {}; {}, which would have printed why, was killed", code, local_node_name(0));
        }
        return code;
    }

    const LocalCluster& cluster_;
    int lifeline_;                            ///< -1 once the daemon is gone
    sigset_t mask_before_{};
    UniqueFd signals_;
    std::map<pid_t, int> running_;            ///< pid of a node's first process → its index
    std::vector<ExitStatus> ends_;            ///< in the order in which nodes ended
    bool first_node_killed_ = false;
    bool told_to_end_ = false;                ///< by a signal from outside
    bool too_few_ = false;                    ///< end_job() was called
    TimePoint end_job_at_ = TimePoint::max();
    TimePoint kill_stragglers_at_ = TimePoint::max();
};

}  // namespace

int run_local_cluster(const LocalCluster& cluster) { return Cluster(cluster).run(); }

std::string local_node_name(int index) { return fmt::format("node{}", index); }

int cluster_exit_code(const std::vector<ExitStatus>& ends) {
    const auto by_itself = [](const ExitStatus& end) { return end.kind == ExitStatus::Kind::kExited; };
    const auto last = std::find_if(ends.rbegin(), ends.rend(), by_itself);
    return last != ends.rend() ? last->exit_code() : ends.back().exit_code();
}

}  // namespace ddprun::launcher
