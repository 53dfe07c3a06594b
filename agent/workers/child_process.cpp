#include "agent/workers/child_process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/close_range.h>
#include <linux/mempolicy.h>
#include <linux/sched.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cassert>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <utility>

#include "agent/guard/control_group.hpp"
#include "common/exit_codes.hpp"
#include "common/system/shared_memory_child.hpp"
#include "common/system/signals_blocked.hpp"
#include "common/system/unique_fd.hpp"

namespace ddprun::agent {
namespace {

using boost::system::error_code;

/// All that the child reads between clone and exec, and the error that it leaves there for its parent.
struct NewProcess {
    char* const* argv;
    char* const* environment;
    int stdout_fd;
    int stderr_fd;
    const int* inherited_fds;  ///< ended by -1
    int group_fd;              ///< of the control group that the child joins; -1: none, or it is born in it
    bool joins_group;          ///< ChildSpec::joins_group
    const void* cpus;          ///< the mask of those on which it may run
    std::size_t cpu_bytes;     ///< the size of that mask; 0: as the caller
    pid_t parent;
    const char* failed_before_exec = nullptr;  ///< what failed; nullptr: nothing, or the exec itself
    bool failed_to_bind = false;               ///< to `cpus`
    int error = 0;                             ///< errno; 0: the program runs
};

std::vector<char*> pointers(const std::vector<std::string>& strings) {
    std::vector<char*> result;
    result.reserve(strings.size() + 1);
    for (const std::string& string : strings) result.push_back(const_cast<char*>(string.c_str()));
    result.push_back(nullptr);
    return result;
}

/// Makes `out` and `err` the descriptors 1 and 2. Both are first copied above 2: one may have the other's number.
DDPRUN_RUNS_IN_CHILD bool place_descriptors(int out, int err) {
    const int high_out = ::fcntl(out, F_DUPFD_CLOEXEC, 3);
    const int high_err = ::fcntl(err, F_DUPFD_CLOEXEC, 3);
    return high_out >= 0 && high_err >= 0 && ::dup2(high_out, STDOUT_FILENO) >= 0 &&
           ::dup2(high_err, STDERR_FILENO) >= 0;
}

/// Binds the calling process to `cpus`, if there are any, and sets MPOL_LOCAL, so that memory comes from the NUMA node
/// of the CPU that first uses it while that node has some. A container may forbid set_mempolicy(2). That failure is
/// ignored: the process then keeps the policy that ddprun was started with, by default the same one.
DDPRUN_RUNS_IN_CHILD bool bind_to(const void* cpus, std::size_t bytes) {
    if (bytes == 0) return true;
    ::syscall(SYS_set_mempolicy, MPOL_LOCAL, nullptr, 0UL);
    return ::syscall(SYS_sched_setaffinity, 0, bytes, cpus) == 0;
}

/// Gives every signal its default action, then unblocks all: no handler of the agent may run in its memory twice. These
/// are system calls, because the functions of libc and of sanitizers note actions in memory.
DDPRUN_RUNS_IN_CHILD void reset_signals() {
    constexpr std::array<std::uint64_t, 8> kDefault{};  // the kernel's sigaction: all zero is SIG_DFL, and an empty set
    for (int number = 1; number < NSIG; ++number)       // fails for SIGKILL and SIGSTOP
        ::syscall(SYS_rt_sigaction, number, kDefault.data(), nullptr, NSIG / 8);
    ::syscall(SYS_rt_sigprocmask, SIG_SETMASK, kDefault.data(), nullptr, NSIG / 8);
}

/// Sets up the child and executes its program. Returns, which ends the child, only if that failed.
DDPRUN_RUNS_IN_CHILD int become_program(void* argument) {
    auto& process = *static_cast<NewProcess*>(argument);
    ::setpgid(0, 0);  // and no session: docs/design/014
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != process.parent) return exit_code::kSignalBase + SIGKILL;  // it died before the line above
    if (const int refused = process.group_fd >= 0 ? join_control_group(process.group_fd) : 0; refused != 0) {
        process.failed_before_exec = "cannot move the new process into the control group of its node";
        process.error = refused;
        return exit_code::kProgramNotFound;
    }
    if (!bind_to(process.cpus, process.cpu_bytes)) {
        process.failed_to_bind = true;
        process.error = errno;
        return exit_code::kProgramNotFound;
    }
    if (place_descriptors(process.stdout_fd, process.stderr_fd)) {
        ::syscall(SYS_close_range, 3u, ~0u, CLOSE_RANGE_CLOEXEC);
        for (const int* fd = process.inherited_fds; *fd >= 0; ++fd) ::fcntl(*fd, F_SETFD, 0);
        reset_signals();
        ::execve(process.argv[0], process.argv, process.environment);
    } else {
        process.failed_before_exec = "cannot give the new process its stdout and stderr";
    }
    process.error = errno;
    return exit_code::kProgramNotFound;
}

/// Starts `process` on `stack`, sharing this process's memory until its exec. Returns its pid, or -1 with errno.
/// Where clone3(2) can be called, the process is born in its control group: to join one, the kernel first waits until
/// all its processors have passed through the scheduler, some milliseconds (docs/design/019). libc has no function for
/// it that takes a stack.
pid_t start_sharing_memory(NewProcess& process, const ChildStack& stack, int& pidfd) {
#ifdef __x86_64__
    if (process.group_fd >= 0 && !process.joins_group) {
        const int group_fd = std::exchange(process.group_fd, -1);
        clone_args how{};
        how.flags = CLONE_VM | CLONE_VFORK | CLONE_PIDFD | CLONE_INTO_CGROUP;
        how.exit_signal = SIGCHLD;
        how.pidfd = reinterpret_cast<std::uintptr_t>(&pidfd);
        how.cgroup = static_cast<std::uint64_t>(group_fd);
        how.stack = reinterpret_cast<std::uintptr_t>(stack.low());
        how.stack_size = stack.size();
        long result = SYS_clone3;
        asm volatile(
            "syscall\n\t"
            "testq %%rax, %%rax\n\t"
            "jnz 1f\n\t"
            "movq %[process], %%rdi\n\t"  // the child: on its own stack, of which nothing returns here
            "callq *%[child]\n\t"
            "movl %%eax, %%edi\n\t"
            "movl %[exit], %%eax\n\t"
            "syscall\n"
            "1:"
            : "+a"(result)
            : "D"(&how), "S"(sizeof how), [child] "r"(&become_program), [process] "r"(&process), [exit] "i"(SYS_exit)
            : "rcx", "r11", "memory", "cc");
        if (result >= 0) return static_cast<pid_t>(result);
        errno = static_cast<int>(-result);
        if (!is_clone3_refused(errno)) return -1;
        process.group_fd = group_fd;
    }
#endif
    return clone_sharing_memory(become_program, &process, stack, CLONE_PIDFD, &pidfd);
}

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
    std::string text = system_error(fmt::format("cannot execute {}", path), error.value()).message;
    if (error == boost::system::errc::no_such_file_or_directory || error == boost::system::errc::not_a_directory)
        text += ". Check the program's name, and that it is installed on that host too";
    return text;
}

Error exec_error(const std::string& path, const error_code& error) {
    if (!remedy(error.value()).empty()) return start_error(fmt::format("cannot execute {}", path), error.value());
    return {error, explain_exec_failure(path, error)};
}

std::string_view binding_remedy(int errno_value) {
    switch (errno_value) {
        case EINVAL:
            return "They have been switched off, or taken from the container or cgroup, since the start: start the job "
                   "again";
        case EPERM:
        case ENOSYS: return "Its container forbids sched_setaffinity(2): allow it there, or leave --numa-binding out";
        default: return "Leave --numa-binding out";
    }
}

Error binding_error(const CpuMask& cpus, int errno_value) {
    return {Errc::kSystem, fmt::format("cannot bind the new process to the CPUs {} of --numa-binding: {}. {}",
                                       number_list(cpus_in(cpus)), std::generic_category().message(errno_value),
                                       binding_remedy(errno_value))};
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
    std::vector<int> inherited_fds = spec.inherited_fds;
    inherited_fds.push_back(-1);
    NewProcess process{argv.data(),      environment.data(),   spec.stdout_fd,
                       spec.stderr_fd,   inherited_fds.data(), spec.group_fd,
                       spec.joins_group, spec.cpus.data(),     spec.cpus.size() * sizeof(spec.cpus[0]),
                       ::getpid()};
    const ChildStack stack;
    int pidfd = -1;
    pid_t pid = -1;
    {
        const SignalsBlocked blocked;  // until reset_signals()
        pid = start_sharing_memory(process, stack, pidfd);
    }
    if (pid < 0) return start_error("cannot start a process", errno);
    if (process.error == 0) return ChildProcess(io, pid, pidfd);
    const UniqueFd unused(pidfd);
    siginfo_t info{};
    wait_for(pid, info);
    if (process.failed_to_bind) return binding_error(spec.cpus, process.error);
    if (process.failed_before_exec != nullptr) return start_error(process.failed_before_exec, process.error);
    return exec_error(spec.argv[0], {process.error, boost::system::system_category()});
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
