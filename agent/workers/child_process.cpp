#include "agent/workers/child_process.hpp"

#include <fmt/format.h>
#include <linux/close_range.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

// The only file that uses Boost.Process. In 1.81 its second version wants the first one included before it.
#include <boost/process.hpp>
#include <boost/process/v2/posix/default_launcher.hpp>
#include <boost/process/v2/process.hpp>

#include <cassert>
#include <cerrno>
#include <csignal>
#include <utility>

#include "agent/guard/control_group.hpp"
#include "common/system/signals_blocked.hpp"

namespace ddprun::agent {
namespace {

namespace process = boost::process::v2;
using boost::system::error_code;

/// Marks an errno in the pipe of Boost.Process's launcher as that of a call before the exec.
constexpr int kBeforeExec = 1 << 16;
/// Marks, beside kBeforeExec, the errno of joining the control group.
constexpr int kJoining = 1 << 17;

/// Ends the child if an exception leaves the launcher there: Asio makes a new reactor in the child and may throw, and
/// no code of the agent may run in a second process.
struct StaysInParent {
    pid_t parent;
    ~StaysInParent() {
        if (::getpid() != parent) ::_exit(exit_code::kInternal);
    }
};

std::vector<char*> pointers(const std::vector<std::string>& strings) {
    std::vector<char*> result;
    result.reserve(strings.size() + 1);
    for (const std::string& string : strings) result.push_back(const_cast<char*>(string.c_str()));
    result.push_back(nullptr);
    return result;
}

/// Makes `out` and `err` the descriptors 1 and 2. Both are first copied above 2: one may have the other's number.
bool place_descriptors(int out, int err) {
    const int high_out = ::fcntl(out, F_DUPFD_CLOEXEC, 3);
    const int high_err = ::fcntl(err, F_DUPFD_CLOEXEC, 3);
    return high_out >= 0 && high_err >= 0 && ::dup2(high_out, STDOUT_FILENO) >= 0 &&
           ::dup2(high_err, STDERR_FILENO) >= 0;
}

void reset_signals() {
    for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);  // fails for SIGKILL and SIGSTOP
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

/// Sets up the child between fork and exec, as an initializer of Boost.Process's launcher. It executes the program
/// itself, because the launcher would first walk /dev/fd, which allocates and which a bare chroot does not have. When
/// it returns an error, the launcher writes errno to a pipe that its parent side reads.
struct InChild {
    char* const* argv;
    char* const* environment;
    int stdout_fd;
    int stderr_fd;
    int inherited_fd;
    int group_fd;
    pid_t parent;

    template <typename Launcher, typename Path, typename Argv>
    error_code on_exec_setup(Launcher&, const Path&, const Argv&) const {
        ::setpgid(0, 0);  // and no session: docs/design/014
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() != parent) ::_exit(exit_code::kSignalBase + SIGKILL);  // it died before the line above
        if (const int refused = group_fd >= 0 ? join_control_group(group_fd) : 0; refused != 0) {
            errno = refused | kBeforeExec | kJoining;
            return {errno, boost::system::system_category()};
        }
        if (!place_descriptors(stdout_fd, stderr_fd)) {
            errno |= kBeforeExec;  // the launcher writes errno, not the error that is returned
            return {errno, boost::system::system_category()};
        }
        ::syscall(SYS_close_range, 3u, ~0u, CLOSE_RANGE_CLOEXEC);
        if (inherited_fd >= 0) ::fcntl(inherited_fd, F_SETFD, 0);
        reset_signals();
        ::execve(argv[0], argv, environment);
        return {errno, boost::system::system_category()};
    }

    /// Ends the child: the launcher would call exit(3), which runs our exit handlers and prints unflushed output twice.
    template <typename... Ignored>
    void on_exec_error(Ignored&&...) const {
        ::_exit(exit_code::kProgramNotFound);
    }
};

/// Returns advice if `errno_value` means that a resource ran out; else an empty text.
std::string_view remedy(int errno_value) {
    switch (errno_value) {
        case EAGAIN:
            return "The limit of processes is reached: raise `ulimit -u`, or the pids limit of its container or cgroup";
        case EMFILE: return "The limit of open files is reached: raise `ulimit -n`, or start fewer workers";
        case ENFILE: return "That machine's limit of open files is reached: raise the sysctl fs.file-max";
        case ENOMEM: return "That machine, or the cgroup of the job, has no memory left";
        case ENOSPC:
        case EDQUOT: return "Free some space there";
        default: return "";
    }
}

std::string explain_exec_failure(const std::string& path, const error_code& error) {
    const bool exists = ::access(path.c_str(), F_OK) == 0;
    if (error == boost::system::errc::no_such_file_or_directory && exists) {
        return fmt::format(
            "cannot execute {}: the interpreter that its first line or its ELF header names does not exist. Install "
            "the interpreter, or correct its path there",
            path);
    }
    if (error == boost::system::errc::permission_denied) {
        return fmt::format("cannot execute {}: permission denied. Is it a program, and executable (chmod +x)?", path);
    }
    if (error == boost::system::errc::executable_format_error) {
        return fmt::format(
            "cannot execute {}: it is neither a program for this machine nor a script that begins with #!. Build the "
            "program for this machine, or begin the script with a line such as #!/bin/sh; a Python script runs with "
            "--run-path",
            path);
    }
    return system_error(fmt::format("cannot execute {}", path), error.value()).message;
}

Error exec_error(const std::string& path, const error_code& error) {
    if (!remedy(error.value()).empty()) return start_error(fmt::format("cannot execute {}", path), error.value());
    return {error, explain_exec_failure(path, error)};
}

ExitStatus exit_status_from(const siginfo_t& info) {
    if (info.si_code == CLD_EXITED) return {ExitStatus::Kind::kExited, info.si_status, false};
    return {ExitStatus::Kind::kSignaled, info.si_status, info.si_code == CLD_DUMPED};
}

void wait_for(pid_t pid, siginfo_t& info) {
    while (::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED) != 0 && errno == EINTR) continue;
}

}  // namespace

Error start_error(std::string_view what, int errno_value) {
    const std::string_view advice = remedy(errno_value);
    Error error = system_error(what, errno_value);
    error.code = advice.empty() ? Errc::kSystem : Errc::kLimit;
    error.message += fmt::format(" (errno {}). {}.", errno_value, advice.empty() ? "Please report this" : advice);
    return error;
}

Result<ChildProcess> ChildProcess::start(boost::asio::io_context& io, const ChildSpec& spec) {
    const std::vector<char*> argv = pointers(spec.argv);
    const std::vector<char*> environment = pointers(spec.environment);
    const InChild in_child{argv.data(),       environment.data(), spec.stdout_fd, spec.stderr_fd,
                           spec.inherited_fd, spec.group_fd,      ::getpid()};

    process::posix::default_launcher launcher;
    error_code error;
    {
        const SignalsBlocked blocked;  // between fork and exec the child must not run our handlers
        const StaysInParent only_here{::getpid()};
        // detach(): the handle would otherwise kill and reap by its own rules. Ours is the pid.
        launcher(io.get_executor(), error, boost::filesystem::path(spec.argv.at(0)), std::vector<std::string>{},
                 in_child)
            .detach();
    }
    if (error) {
        siginfo_t info{};
        if (launcher.pid > 0) wait_for(launcher.pid, info);  // the launcher leaves the failed child as a zombie
        if (launcher.pid <= 0) return start_error("cannot fork", error.value());
        if ((error.value() & kBeforeExec) != 0) {
            const bool joining = (error.value() & kJoining) != 0;
            return start_error(joining ? "cannot move the new process into the control group of its node"
                                       : "cannot give the new process its stdout and stderr",
                               error.value() & ~(kBeforeExec | kJoining));
        }
        return exec_error(spec.argv[0], error);
    }
    const int pidfd = static_cast<int>(::syscall(SYS_pidfd_open, launcher.pid, 0u));
    if (pidfd < 0) {
        const int number = errno;
        siginfo_t info{};
        ::kill(-launcher.pid, SIGKILL);
        wait_for(launcher.pid, info);
        return start_error("cannot watch the new process (pidfd_open)", number);
    }
    return ChildProcess(io, launcher.pid, pidfd);
}

ChildProcess::ChildProcess(boost::asio::io_context& io, pid_t pid, int pidfd) : pid_(pid), pidfd_(io, pidfd) {}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), pidfd_(std::move(other.pidfd_)) {}

ChildProcess::~ChildProcess() {
    if (pid_ > 0) {
        signal_group(SIGKILL);
        reap();
    }
}

void ChildProcess::async_wait(std::function<void()> ended) {
    pidfd_.async_wait(boost::asio::posix::descriptor_base::wait_read,
                      [ended = std::move(ended)](const error_code& error) {
                          if (!error) ended();  // an error means that the owner was destroyed
                      });
}

std::optional<ExitStatus> ChildProcess::status() const {
    siginfo_t info{};
    if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
        return std::nullopt;
    return exit_status_from(info);
}

void ChildProcess::signal(int number) const {
    assert(pid_ > 1);  // kill(2) gives other meanings to 0, -1 and the negative of 1
    ::kill(pid_, number);
}

void ChildProcess::signal_group(int number) const {
    assert(pid_ > 1);
    ::kill(-pid_, number);
}

ExitStatus ChildProcess::reap() {
    siginfo_t info{};
    wait_for(pid_, info);
    pid_ = -1;
    return exit_status_from(info);
}

}  // namespace ddprun::agent
