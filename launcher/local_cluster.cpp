#include "launcher/local_cluster.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <map>
#include <optional>
#include <set>

#include "agent/group/worker_group.hpp"
#include "agent/guard/children.hpp"
#include "agent/guard/describe_process.hpp"
#include "agent/verdict_text.hpp"
#include "common/clock.hpp"
#include "common/error.hpp"
#include "common/system/signals.hpp"
#include "common/system/standard_fds.hpp"
#include "common/text/list.hpp"
#include "common/text/number.hpp"
#include "launcher/cluster_signals.hpp"
#include "launcher/final_report.hpp"
#include "launcher/options/option_values.hpp"

namespace ddprun::launcher {
namespace {

/// A node whose daemon has ended gets this much more than the grace of its workers before it is killed.
constexpr std::chrono::seconds kAfterGrace{10};
/// A node that waits for the console ends by itself after console_timeout(); it gets this much more.
constexpr std::chrono::seconds kConsoleGrace{5};
/// How often the console is looked at, after the daemon has ended or while lines wait.
constexpr std::chrono::milliseconds kConsoleInterval{100};

/// Cluster: owns the processes of the emulated nodes, from the first fork to the last wait, and decides when they are
/// stopped. Used by run_local_cluster() alone.
class Cluster {
public:
    explicit Cluster(const LocalCluster& cluster) : cluster_(cluster), lifeline_(cluster.daemon_lifeline) {
        // Orphans of a node whose guard and agent are killed together become our children, and are killed here.
        ::prctl(PR_SET_CHILD_SUBREAPER, 1);
        ignore_failed_writes();
    }
    Cluster(const Cluster&) = delete;
    Cluster& operator=(const Cluster&) = delete;
    ~Cluster() {
        if (!everything_ended_) end_everything();
    }

    ClusterEnd run() {
        for (int index = 0; index < cluster_.nodes; ++index) start_node(index);
        while (!running_.empty()) {
            wait_for_event();
            reap();
            end_orphans();
        }
        end_everything();
        watch_console();
        ClusterEnd end = report_end();
        end.stop_signal = stop_signal_;
        if (full_since_)
            end.console_full = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - *full_since_);
        return end;
    }

private:
    void start_node(int index) {
        const LocalNode node{index, cluster_.endpoint, final_report_.fd(), cluster_.open_lines_fd};
        std::vector<std::string> arguments{"ddprun", "--as-local-node", to_string(node)};
        arguments.insert(arguments.end(), cluster_.arguments.begin(), cluster_.arguments.end());
        std::vector<char*> argv;
        for (std::string& argument : arguments) argv.push_back(argument.data());
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
        if (::getppid() != launcher) ::_exit(exit_code::kInternal);  // it died before prctl()
        notice_failed_writes();
        ::setpgid(0, 0);  // Ctrl-C comes once, through the launcher
        signals_.restore_mask();
        ::execv("/proc/self/exe", argv);
        ::_exit(exit_code::kInternal);
    }

    /// Waits for a signal, the daemon's end or the next deadline, and acts on it.
    void wait_for_event() {
        std::array<pollfd, 2> sources{pollfd{signals_.fd(), POLLIN, 0}, pollfd{lifeline_, POLLIN, 0}};
        watch_console();
        const TimePoint next = std::min({kill_stragglers_at_, report_wait_at_, look_at_console_at_});
        int timeout_ms = -1;
        if (next != TimePoint::max()) {
            const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now());
            timeout_ms = static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 60'000));
        }
        const int ready = ::poll(sources.data(), sources.size(), timeout_ms);
        if (ready > 0 && sources[1].revents != 0) daemon_ended();
        if (Clock::now() >= kill_stragglers_at_) kill_stragglers();
        if (Clock::now() >= report_wait_at_) report_wait();
        forward_signals();
    }

    /// The daemon ends with the job, and nodes end by themselves then. One that is stopped or hangs is killed later.
    void daemon_ended() {
        lifeline_ = -1;  // poll() ignores it from here on
        stragglers_since_ = Clock::now();
        kill_stragglers_at_ = stragglers_since_ + cluster_.grace + kAfterGrace;
    }

    /// Writes the lines that wait, as far as the console takes them, and notes since when it takes nothing.
    void watch_console() {
        const bool lines_wait = cluster_.console.drain(std::chrono::milliseconds(0)) > 0;
        if (!has_room(STDOUT_FILENO) || !stderr_has_room()) seen_full_at_ = Clock::now();
        if (stderr_has_room())
            full_since_.reset();
        else if (!full_since_)
            full_since_ = Clock::now();
        const bool look_again = lines_wait || kill_stragglers_at_ != TimePoint::max();
        look_at_console_at_ = look_again ? Clock::now() + kConsoleInterval : TimePoint::max();
    }

    /// Returns whether a node that has left its record may still be waiting for the console, and will end by itself:
    /// after a successful job it waits without limit for a console that is not read, as every program does.
    [[nodiscard]] bool may_wait_for_console(int exit_code) const {
        const bool success = exit_code == exit_code::kSuccess && stop_signal_ == 0;
        const int end = stop_signal_ == 0 ? exit_code : exit_code::kSignalBase + stop_signal_;
        const TimePoint since = success ? std::max(stragglers_since_, seen_full_at_) : stragglers_since_;
        return Clock::now() < since + agent::console_timeout(end) + kConsoleGrace;
    }

    /// Kills the nodes that do not end, and looks again at those that wait for the console.
    void kill_stragglers() {
        watch_console();  // this process may have been suspended since the last look
        const NodesReport nodes = final_report_.read();
        kill_stragglers_at_ = TimePoint::max();
        for (const auto& [pid, index] : running_) {
            const std::string name = local_node_name(index);
            const auto ended = nodes.exit_codes.find(name);
            if (ended != nodes.exit_codes.end() && may_wait_for_console(ended->second)) {
                kill_stragglers_at_ = Clock::now() + kConsoleInterval;
                continue;
            }
            if (!killed_.insert(pid).second) continue;
            spdlog::warn("{} still runs although the rendezvous daemon has ended: sending it SIGKILL", name);
            ::kill(pid, SIGKILL);
        }
    }

    [[nodiscard]] bool ends_job(int signal) const {
        constexpr std::array kStop{SIGINT, SIGTERM, SIGHUP, SIGQUIT};
        return std::ranges::count(kStop, signal) > 0 || std::ranges::count(cluster_.handled_signals, signal) > 0;
    }

    /// Passes signals on to all nodes.
    void forward_signals() {
        while (const std::optional<int> signal = signals_.next()) {
            if (*signal == SIGCHLD) continue;  // reap() looks for itself
            if (ends_job(*signal)) note_stop_signal(*signal);
            for (const auto& [pid, index] : running_) {
                ::kill(pid, *signal);
                if (ends_job(*signal)) ::kill(pid, SIGCONT);  // Ctrl-Z has stopped the guards of the nodes
            }
        }
    }

    /// Notes the first signal that ends the job.
    void note_stop_signal(int signal) {
        const TimePoint now = Clock::now();
        if (stop_signal_ == 0) {
            stop_signal_ = signal;
            for (const auto& [pid, index] : running_) stopped_nodes_.push_back(local_node_name(index));
            stopped_at_ = now;
            report_wait_at_ = now + agent::worker_group::kStopWaitReportedAfter;
        } else if (now - stopped_at_ >= agent::worker_group::kSecondSignalAfter) {
            report_wait_at_ = TimePoint::max();  // the agents kill their workers
        }
    }

    /// Reports the nodes that a signal has not ended yet.
    void report_wait() {
        report_wait_at_ = TimePoint::max();
        std::vector<std::string> names;
        for (const auto& [pid, index] : running_) names.push_back(local_node_name(index));
        const auto left = std::chrono::ceil<std::chrono::seconds>(stopped_at_ + cluster_.grace - Clock::now());
        if (left.count() <= 0) return;  // the workers are being killed
        spdlog::info("got {}: waiting up to {} for the workers of {} to end; {} kills them now",
                     signal_name(stop_signal_), seconds_text(left), list_of(names),
                     stop_signal_ == SIGINT ? "Ctrl-C again" : "another SIGTERM");
    }

    void reap() {
        int status = 0;
        for (pid_t pid = 0; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
            const auto node = running_.find(pid);
            if (node == running_.end()) continue;  // an orphan that end_orphans() has killed
            ends_.push_back(exit_status_from_wait(status));
            const std::string how = fmt::format("{} {}", local_node_name(node->second), to_string(ends_.back()));
            if (ends_.back().kind == ExitStatus::Kind::kSignaled) spdlog::warn("{}", how);
            running_.erase(node);
            if (running_.size() < static_cast<std::size_t>(cluster_.min_nodes)) report_too_few(how);
        }
    }

    /// Reports to the daemon that no other node comes in the place of the one that has just ended.
    void report_too_few(const std::string& how) const {
        const std::string why = fmt::format("an emulated node is not replaced ({})", how);
        if (lifeline_ >= 0) (void)::send(lifeline_, why.data(), why.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    }

    /// Returns every child that is not a node, and does not end by itself: this process became its parent because its
    /// guard is dead. Those that do not fit are returned by the next call.
    [[nodiscard]] std::vector<pid_t> orphans() const {
        std::array<pid_t, 256> children{};
        const int count = agent::list_children(children.data(), children.size());
        std::vector<pid_t> found(children.begin(), children.begin() + std::max(0, count));
        std::erase_if(found, [this](pid_t child) {
            return running_.contains(child) || agent::is_keeper(child, cluster_.guard_program);
        });
        return found;
    }

    void end_orphans() const {
        for (const pid_t orphan : orphans()) ::kill(orphan, SIGKILL);
    }

    /// Kills and reaps until no child is left: the last orphans of a normal end, or everything after an exception.
    void end_everything() {
        everything_ended_ = true;  // or the wait for it is given up below
        for (const auto& [pid, index] : running_) ::kill(pid, SIGKILL);
        running_.clear();
        for (const TimePoint give_up = Clock::now() + kAfterGrace; Clock::now() < give_up;) {
            end_orphans();
            pid_t ended = 0;
            while ((ended = ::waitpid(-1, nullptr, WNOHANG)) > 0) {
            }
            if (ended < 0) return;  // ECHILD
            pollfd child_ended{signals_.fd(), POLLIN, 0};
            ::poll(&child_ended, 1, 10);
            while (signals_.next()) {
            }
        }
        std::vector<std::string> left;
        for (const pid_t child : orphans()) left.push_back(agent::describe_process(child));
        spdlog::warn(
            "processes of the job have survived SIGKILL and are left behind: pid {}. In state D they wait in the "
            "kernel, and this machine may need a reboot",
            fmt::join(left, ", "));
    }

    /// A node that had not joined when the signal ended the others may find that the daemon has ended.
    [[nodiscard]] int exit_code_of_job(const NodesReport& nodes) const {
        const bool killed =
            std::ranges::none_of(ends_, [](const ExitStatus& end) { return end.kind == ExitStatus::Kind::kExited; });
        const bool known = killed && !nodes.exit_codes.empty();  // while they waited for the console
        const int code = known ? nodes.exit_codes.begin()->second : cluster_exit_code(ends_);
        if (stop_signal_ == 0) return code;
        const int interrupted = exit_code::kSignalBase + stop_signal_;
        const bool any = std::ranges::count(ends_, interrupted, [](const ExitStatus& end) { return end.exit_code(); });
        return any && code == exit_code::kInfrastructure ? interrupted : code;
    }

    /// Returns whether the node had workers when the signal came. A node without a report was killed, with its workers.
    [[nodiscard]] bool had_workers(const std::string& node, const NodesReport& reports) const {
        if (!reports.exit_codes.contains(node)) return true;
        const auto own = reports.generations.find(node);
        if (own == reports.generations.end()) return false;
        const auto stop = reports.stops_began_at.find(node);
        if (stop != reports.stops_began_at.end() && TimePoint(Duration(stop->second)) >= stopped_at_) return true;
        // A scheduler may have signalled the workers, too, just before. Those of an older generation had ended.
        return std::ranges::none_of(reports.generations, [&](const auto& one) { return one.second > own->second; });
    }

    /// Returns ": 4 workers stopped on 2 nodes".
    [[nodiscard]] std::string stopped_workers(const NodesReport& reports) const {
        const auto nodes =
            std::ranges::count_if(stopped_nodes_, [&](const auto& node) { return had_workers(node, reports); });
        if (nodes == 0) return "; no worker was running";
        return fmt::format(": {} stopped on {}", counted(nodes * cluster_.workers_per_node, "worker"),
                           counted(nodes, "node"));
    }

    /// Prints the outcome once for all nodes, as each would on a machine of its own. Returns it.
    ClusterEnd report_end() const {
        NodesReport nodes = final_report_.read();
        ClusterEnd end{exit_code_of_job(nodes), "", "", std::move(nodes.report)};
        if (stop_signal_ != 0 && end.exit_code == exit_code::kSignalBase + stop_signal_) {
            end.reason = fmt::format("interrupted by {}{}", signal_name(stop_signal_), stopped_workers(nodes));
            spdlog::error("{}", end.reason);
        } else if (!nodes.text.empty() && end.exit_code != 0) {
            print(nodes.text);
        } else if (end.exit_code == exit_code::kInfrastructure &&
                   lifeline_ < 0) {  // each node has reported its own end
            end.reason = "the rendezvous daemon of the job, ddprund, ended before the job";
            end.hint = "Look for what killed it (`dmesg | grep -i oom`), then start the job again";
            spdlog::error("{}. {}", end.reason, end.hint);
        } else if (end.exit_code != 0) {
            end.reason = fmt::format(
                "the job ended with exit code {}, and no node has reported the reason: all may "
                "have been killed",
                end.exit_code);
            end.hint = "Look at the lines above, and for the out-of-memory killer (`dmesg | grep -i oom`)";
            spdlog::error("{}. {}", end.reason, end.hint);
        }
        if (!nodes.goodput.empty()) spdlog::info("{}", nodes.goodput);
        return end;
    }

    void print(const std::string& text) const { agent::write_block(cluster_.console, text, cluster_.timestamps); }

    const LocalCluster& cluster_;
    int lifeline_;  ///< -1 once the daemon has ended
    ClusterSignals signals_;
    FinalReport final_report_;
    std::map<pid_t, int> running_;  ///< pid of a node's first process → its index
    std::vector<ExitStatus> ends_;  ///< in the order in which nodes ended
    bool everything_ended_ = false;
    int stop_signal_ = 0;                     ///< the first signal from outside that ends the job; 0: there was none
    std::vector<std::string> stopped_nodes_;  ///< nodes that ran when it arrived
    TimePoint stragglers_since_{};            ///< the daemon's end
    TimePoint seen_full_at_{};                ///< when stdout or stderr took nothing, as the latest look saw it
    std::set<pid_t> killed_;                  ///< the stragglers
    TimePoint kill_stragglers_at_ = TimePoint::max();
    TimePoint stopped_at_{};  ///< when the first signal came
    TimePoint report_wait_at_ = TimePoint::max();
    TimePoint look_at_console_at_ = TimePoint::max();
    std::optional<TimePoint> full_since_;  ///< the console takes nothing
};

}  // namespace

ClusterEnd run_local_cluster(const LocalCluster& cluster) { return Cluster(cluster).run(); }

std::string local_node_name(int index) { return fmt::format("node{}", index); }

int cluster_exit_code(const std::vector<ExitStatus>& ends) {
    const auto by_itself = [](const ExitStatus& end) { return end.kind == ExitStatus::Kind::kExited; };
    const auto last = std::find_if(ends.rbegin(), ends.rend(), by_itself);
    return last != ends.rend() ? last->exit_code() : ends.back().exit_code();
}

}  // namespace ddprun::launcher
