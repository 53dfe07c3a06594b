#include "launcher/ssh_job.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <sstream>
#include <utility>

#include "common/clock.hpp"
#include "common/exit_codes.hpp"
#include "common/ids.hpp"
#include "common/job_key.hpp"
#include "common/system/exit_status.hpp"
#include "common/system/signals.hpp"
#include "common/system/standard_fds.hpp"
#include "common/system/unique_fd.hpp"
#include "common/text/number.hpp"
#include "launcher/cluster_signals.hpp"
#include "launcher/host/this_host.hpp"
#include "launcher/local_cluster.hpp"
#include "launcher/ssh_node.hpp"
#include "launcher/ssh_request.hpp"

namespace ddprun::launcher {
namespace {

constexpr std::chrono::seconds kToEndByThemselves{10};  ///< for the other hosts, after one has failed
constexpr std::chrono::seconds kAfterStop{20};          ///< for the hosts to end, beyond the grace of their workers
constexpr std::chrono::milliseconds kLookAtConsole{100};
constexpr std::size_t kMaxLineBytes = 64 << 10;

using Words = std::vector<std::string>;

/// A stream of one host on its way to ours. Whole lines are written at once, because several hosts print.
struct HostOutput {
    UniqueFd from;
    int to = -1;
    std::string text;  ///< that has no end of a line yet
};

/// One host of the job.
struct HostRun {
    const SshHost* host = nullptr;
    Words command;
    pid_t pid = -1;  ///< of ssh; -1: it has ended
    UniqueFd input;
    std::string unsent;  ///< the rest of the request, and signals
    std::array<HostOutput, 2> outputs;
    bool started = false;      ///< ddprun runs there, or has run
    std::optional<int> ended;  ///< its exit code
    ExitStatus status;         ///< of ssh
};

bool is_this_host(const std::string& name) {
    const std::string own = host_name();
    return name == "localhost" || name == own || name == own.substr(0, own.find('.'));
}

Words words_of(const std::string& line) {
    std::istringstream stream(line);
    Words words;
    for (std::string word; stream >> word;) words.push_back(word);
    return words;
}

/// Returns the command that runs ddprun on `host`: by ssh, and on this host without it.
Words command_for(const SshHost& host, const std::string& ssh, const std::string& program) {
    if (is_this_host(host.name) && host.login == host.name) return {program, std::string(kSshNodeArgument)};
    Words words = words_of(ssh);
    words.push_back(host.login);
    words.push_back(fmt::format("exec {} {}", shell_word(program), kSshNodeArgument));
    return words;
}

std::array<UniqueFd, 2> make_pipe() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw ErrorException(system_error("cannot make a pipe for ssh", errno));
    return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

/// SshJob: owns the processes of ssh and the pipes to them. On the stack of run_ssh_job().
class SshJob {
public:
    explicit SshJob(const Options& options) : options_(options), runs_(options.hosts.size()) {}
    SshJob(const SshJob&) = delete;
    SshJob& operator=(const SshJob&) = delete;
    ~SshJob() {
        for (const HostRun& run : runs_)
            if (run.pid > 0) ::kill(run.pid, SIGKILL);
    }

    void start(std::size_t index, std::string request, Words command) {
        HostRun& run = runs_[index];
        run.host = &options_.hosts[index];
        run.command = std::move(command);
        run.unsent = std::move(request);
        auto [in_read, in_write] = make_pipe();
        auto [out_read, out_write] = make_pipe();
        auto [err_read, err_write] = make_pipe();
        std::vector<char*> argv;
        for (std::string& word : run.command) argv.push_back(word.data());
        argv.push_back(nullptr);
        std::fflush(nullptr);
        run.pid = ::fork();
        if (run.pid < 0) throw ErrorException(system_error(fmt::format("cannot start {}", run.command.front()), errno));
        if (run.pid == 0) {
            ::setpgid(0, 0);  // Ctrl-C reaches the hosts once, through this process
            ::dup2(in_read.get(), STDIN_FILENO);
            ::dup2(out_write.get(), STDOUT_FILENO);
            ::dup2(err_write.get(), STDERR_FILENO);
            notice_failed_writes();
            signals_.restore_mask();
            ::execvp(argv[0], argv.data());
            std::fputs(fmt::format("ddprun: cannot execute {}: {}\n", argv[0], std::strerror(errno)).c_str(), stderr);
            ::_exit(exit_code::kProgramNotFound);
        }
        run.input = std::move(in_write);
        ::fcntl(run.input.get(), F_SETFL, O_NONBLOCK);
        run.outputs[0] = {std::move(out_read), STDOUT_FILENO, ""};
        run.outputs[1] = {std::move(err_read), STDERR_FILENO, ""};
    }

    int run() {
        while (std::ranges::any_of(runs_, [](const HostRun& run) { return is_open(run); })) {
            wait_for_event();
            forward_signals();
            reap();
            if (Clock::now() >= give_up_at_) give_up();
            if (Clock::now() >= kill_at_) kill_all();
        }
        return exit_code_of_job();
    }

private:
    static bool is_open(const HostOutput& output) { return output.from || !output.text.empty(); }
    static bool is_open(const HostRun& run) {
        return run.pid > 0 || is_open(run.outputs[0]) || is_open(run.outputs[1]);
    }

    void wait_for_event() {
        std::vector<pollfd> sources{{signals_.fd(), POLLIN, 0}};
        bool waits_for_console = false;
        for (HostRun& run : runs_) {
            sources.push_back({run.unsent.empty() ? -1 : run.input.get(), POLLOUT, 0});
            for (HostOutput& output : run.outputs) {
                const bool has_rest = write_lines(output);
                waits_for_console = waits_for_console || has_rest;
                sources.push_back({has_rest ? -1 : output.from.get(), POLLIN, 0});
            }
        }
        TimePoint next = std::min(kill_at_, give_up_at_);
        if (waits_for_console) next = std::min<TimePoint>(next, Clock::now() + kLookAtConsole);
        int timeout_ms = -1;
        if (next != TimePoint::max()) {
            const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now());
            timeout_ms = static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 60'000));
        }
        if (::poll(sources.data(), sources.size(), timeout_ms) <= 0) return;
        std::size_t at = 1;
        for (HostRun& run : runs_) {
            if (sources[at++].revents != 0) send_rest(run);
            for (HostOutput& output : run.outputs)
                if (sources[at++].revents != 0) pass_through(run, output);
        }
    }

    static void send_rest(HostRun& run) {
        const ssize_t sent = ::write(run.input.get(), run.unsent.data(), run.unsent.size());
        if (sent > 0) run.unsent.erase(0, static_cast<std::size_t>(sent));
        if (sent >= 0 || errno == EAGAIN || errno == EINTR) return;
        run.unsent.clear();  // ssh has ended, or will not read any more; its exit status has the reason
        run.input.reset();
    }

    static void pass_through(HostRun& run, HostOutput& output) {
        std::array<char, 16 << 10> bytes;
        const ssize_t got = ::read(output.from.get(), bytes.data(), bytes.size());
        if (got < 0 && errno == EINTR) return;
        if (got > 0) output.text.append(bytes.data(), static_cast<std::size_t>(got));
        if (output.to == STDOUT_FILENO) take_marks(run, output.text);
        if (got <= 0) output.from.reset();
        (void)write_lines(output);
    }

    /// Writes the whole lines that the console takes at once: it may take none for long (a pager), and signals are
    /// passed on meanwhile. Returns whether some are left.
    static bool write_lines(HostOutput& output) {
        for (;;) {
            const auto last = output.text.rfind('\n');
            std::size_t whole = last == std::string::npos ? 0 : last + 1;
            if (!output.from || output.text.size() > kMaxLineBytes) whole = output.text.size();
            if (whole == 0) return false;
            if (!has_room(output.to)) return true;
            if (whole > PIPE_BUF) {  // as much as a pipe with room takes for sure, in whole lines if one ends there
                const auto end = output.text.rfind('\n', PIPE_BUF - 1);
                whole = end == std::string::npos ? PIPE_BUF : end + 1;
            }
            const ssize_t written = ::write(output.to, output.text.data(), whole);
            if (written > 0) {
                output.text.erase(0, static_cast<std::size_t>(written));
            } else if (errno == EAGAIN || errno == EINTR) {
                return true;
            } else {
                output.text.clear();  // without a reader the job goes on
                return false;
            }
        }
    }

    /// Takes our marks out of the text.
    static void take_marks(HostRun& run, std::string& text) {
        if (const auto at = text.find(kStartedMark); !run.started && at != std::string::npos) {
            run.started = true;
            text.erase(at, kStartedMark.size());
        }
        const auto at = text.find(kEndedMark);
        const auto end = at == std::string::npos ? at : text.find('\n', at);
        if (end == std::string::npos) return;
        run.ended = parse_number<int>(std::string_view(text).substr(at, end - at).substr(kEndedMark.size()));
        text.erase(at, end + 1 - at);
    }

    void forward_signals() {
        constexpr std::array kStop{SIGINT, SIGTERM, SIGHUP, SIGQUIT};
        while (const auto signal = signals_.next()) {
            if (*signal == SIGCHLD || *signal == SIGWINCH) continue;
            const bool ends_job = std::ranges::count(kStop, *signal) > 0;
            if (ends_job && stop_signal_ == 0) stop_signal_ = *signal;
            if (ends_job) expect_end();
            send_to_all(*signal);
            if (*signal != SIGTSTP) continue;
            for (HostRun& run : runs_)
                if (run.input) send_rest(run);
            ::raise(SIGSTOP);  // as the shell expects; SIGCONT follows
        }
    }

    void send_to_all(int signal) {
        for (HostRun& run : runs_)
            if (run.input) run.unsent += static_cast<char>(signal);
    }

    void expect_end() { kill_at_ = std::min<TimePoint>(kill_at_, Clock::now() + options_.grace + kAfterStop); }

    void kill_all() {
        kill_at_ = TimePoint::max();
        for (HostRun& run : runs_) {
            if (!is_open(run)) continue;
            spdlog::warn("{} has not ended: its connection is closed, which ends the job there", run.host->name);
            if (run.pid > 0) ::kill(run.pid, SIGKILL);
            for (HostOutput& output : run.outputs) {
                output.from.reset();
                output.text.clear();
            }
        }
    }

    void reap() {
        for (HostRun& run : runs_) {
            int status = 0;
            if (run.pid <= 0 || ::waitpid(run.pid, &status, WNOHANG) != run.pid) continue;
            run.pid = -1;
            run.status = exit_status_from_wait(status);
            run.input.reset();
            run.unsent.clear();
            for (HostOutput& output : run.outputs)  // the last marks are in the pipe
                while (output.from && pollin(output.from.get())) pass_through(run, output);
            for (HostOutput& output : run.outputs) output.from.reset();  // a child of ssh may hold it open
            if (run.ended)
                note_end(*run.ended);
            else
                report_lost(run);
        }
    }

    /// A host that ends while too few are left, as one without the program, may never have joined: then the others
    /// would wait for it.
    void note_end(int code) {
        codes_.push_back(code);
        const auto left = std::ranges::count_if(runs_, [](const HostRun& run) { return run.pid > 0; });
        if (code != 0 && left > 0 && left < options_.nodes.min)
            give_up_at_ = std::min<TimePoint>(give_up_at_, Clock::now() + kToEndByThemselves);
    }

    void give_up() {
        give_up_at_ = TimePoint::max();
        gave_up_ = true;
        expect_end();
        send_to_all(SIGTERM);
    }

    static bool pollin(int fd) {
        pollfd source{fd, POLLIN, 0};
        return ::poll(&source, 1, 0) == 1;
    }

    /// Ends the job if it cannot go on without a host.
    void report_lost(const HostRun& run) {
        ++lost_;
        if (stop_signal_ != 0) return;
        if (run.started) {
            spdlog::error("the connection to {} is lost: {} {}. The ddprun there ends", run.host->name,
                          run.command.front(), to_string(run.status));
        } else {
            spdlog::error(
                "ddprun was not started on {}: {} {}. Check that `{} {} true` succeeds without a question, and that {} "
                "is there",
                run.host->name, run.command.front(), to_string(run.status), options_.ssh, run.host->login,
                program_file());
        }
        const bool is_meeting = &run == &runs_.front() && !run.started && !options_.rdzv_endpoint;
        const bool may_go_on = static_cast<int>(runs_.size()) - lost_ >= options_.nodes.min && !is_meeting;
        if (may_go_on || is_ending_) return;
        is_ending_ = true;
        expect_end();
        send_to_all(SIGTERM);
    }

    [[nodiscard]] int exit_code_of_job() const {
        if (is_ending_) return exit_code::kInfrastructure;
        std::vector<int> codes;  // without those of spares that were not needed
        for (const int code : codes_)
            if (code != exit_code::kNeverRan) codes.push_back(code);
        if (codes.empty())
            return stop_signal_ != 0 ? exit_code::kSignalBase + stop_signal_ : exit_code::kInfrastructure;
        if (!gave_up_) return codes.back();  // the host that was there to the end knows the verdict
        const auto failed = std::ranges::find_if(codes, [](int code) { return code != 0; });
        return failed != codes.end() ? *failed : exit_code::kSuccess;
    }

public:
    static std::string program_file() {
        std::error_code ec;
        return std::filesystem::read_symlink("/proc/self/exe", ec).string();
    }

private:
    const Options& options_;
    ClusterSignals signals_;
    std::vector<HostRun> runs_;
    int stop_signal_ = 0;
    int lost_ = 0;
    bool is_ending_ = false;  ///< because of a lost host
    std::vector<int> codes_;  ///< of the hosts whose ddprun has ended, in that order
    bool gave_up_ = false;    ///< the hosts that were left did not end by themselves
    TimePoint give_up_at_ = TimePoint::max();
    TimePoint kill_at_ = TimePoint::max();
};

}  // namespace

std::string shell_word(std::string_view text) {
    std::string word = "'";
    for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return word + "'";
}

Result<int> run_ssh_job(const Options& options, const std::vector<std::string>& arguments,
                        const Environment& environment) {
    SshRequest request{std::filesystem::current_path().string(), {}, variables_for_hosts(environment)};
    if (!options.insecure && options.hosts.size() > 1) {
        const auto key = JobKey::load(environment);
        if (!key) return key.error();
        request.environment[kJobKeyVariable] = key->text();
        request.environment.erase(kJobKeyFileVariable);
    }
    const std::string job = random_id();
    SshJob run(options);
    for (std::size_t index = 0; index < options.hosts.size(); ++index) {
        request.arguments = {"--as-ssh-node", fmt::format("{}@{}@{}", index, job, list_of_hosts(options.hosts))};
        request.arguments.insert(request.arguments.end(), arguments.begin(), arguments.end());
        run.start(index, encode(request), command_for(options.hosts[index], options.ssh, SshJob::program_file()));
    }
    return run.run();
}

}  // namespace ddprun::launcher
