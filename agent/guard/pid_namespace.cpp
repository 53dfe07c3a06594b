#include "agent/guard/pid_namespace.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "common/system/host_pid.hpp"
#include "common/system/process.hpp"

namespace ddprun::agent {
namespace {

Result<void> write_to(const char* path, const std::string& text) {
    const UniqueFd file(::open(path, O_WRONLY | O_CLOEXEC));
    if (!file || ::write(file.get(), text.data(), text.size()) < 0)
        return system_error(fmt::format("cannot write {}", path), errno);
    return {};
}

/// Maps the user and the group of this process to themselves in its new user namespace.
Result<void> keep_ids(uid_t user, gid_t group) {
    if (const auto written = write_to("/proc/self/setgroups", "deny"); !written) return written;
    if (const auto written = write_to("/proc/self/uid_map", fmt::format("{0} {0} 1", user)); !written) return written;
    return write_to("/proc/self/gid_map", fmt::format("{0} {0} 1", group));
}

/// Makes the next child of this process the first one of a new pid namespace. This process must have one thread.
Result<void> prepare_pid_namespace() {
    if (::unshare(CLONE_NEWPID) == 0) return {};
    if (errno != EPERM) return system_error("no pid namespace can be made", errno);
    const uid_t user = ::geteuid();
    const gid_t group = ::getegid();
    if (::unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) return system_error("no user namespace can be made", errno);
    return keep_ids(user, group);
}

int wait_for_exit(pid_t child) {
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/// Writes `text` to the other end of the pipe and ends this child process, with exit code 0 if the text is empty.
[[noreturn]] void end_child(const std::string& text, int pipe) {
    [[maybe_unused]] const ssize_t ignored =
        ::write(pipe, text.data(), text.size());  // a reader that gets nothing reports that
    ::_exit(text.empty() ? 0 : 1);
}

/// Makes a pid namespace and forks its first process, in which it returns 0. Ends this child process if that fails.
pid_t fork_first(int pipe) {
    if (const auto prepared = prepare_pid_namespace(); !prepared) end_child(prepared.error().message, pipe);
    const pid_t first = ::fork();
    if (first < 0) end_child(system_error("cannot fork into a new pid namespace", errno).message, pipe);
    return first;
}

[[noreturn]] void probe(int pipe) {
    const pid_t first = fork_first(pipe);
    if (first > 0) ::_exit(wait_for_exit(first));
    const auto entered = enter_pid_namespace();
    end_child(entered ? "" : entered.error().message, pipe);
}

/// Returns the text that a child process writes by end_child(); empty: it has written none.
std::string read_report(int pipe) {
    std::string text(512, '\0');
    const ssize_t size = ::read(pipe, text.data(), text.size());
    text.resize(static_cast<std::size_t>(size > 0 ? size : 0));
    return text;
}

}  // namespace

Result<pid_t> fork_into_pid_namespace() {
    auto report = make_pipe("to the parent of process 1");
    if (!report) return report.error();
    auto settled = make_pipe("to process 1");
    if (!settled) return settled.error();
    // A process with several threads can make no user namespace, so a child does it and forks: it has one thread.
    const pid_t between = ::fork();
    if (between < 0) return system_error("cannot fork", errno);
    if (between == 0) {
        const pid_t first = fork_first(report->write_end.get());
        if (first > 0) end_child(std::to_string(first), report->write_end.get());
        // Waits until `between` was reaped: its end must not cause the parent-death signal that the caller asks for.
        report->write_end.reset();
        settled->write_end.reset();
        char byte = 0;
        [[maybe_unused]] const ssize_t ignored = ::read(settled->read_end.get(), &byte, 1);
        return 0;
    }
    report->write_end.reset();
    const std::string text = read_report(report->read_end.get());
    wait_for_exit(between);
    const pid_t first = std::atoi(text.c_str());  // 0: the text is a reason
    if (first > 0) return first;
    return Error{Errc::kSystem, text.empty() ? "a new pid namespace ended at once" : text};
}

Result<void> enter_pid_namespace() {
    UniqueFd host_proc(::open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!host_proc) return system_error("cannot open /proc", errno);
    if (::unshare(CLONE_NEWNS) != 0) return system_error("no mount namespace can be made", errno);
    // Mounts of the host still appear here, such as a home directory that is mounted on demand; ours do not appear
    // there.
    if (::mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0)
        return system_error("cannot make the mounts private", errno);
    if (::mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) != 0)
        return system_error("cannot mount /proc of the new pid namespace", errno);
    translate_pids_by(std::move(host_proc));
    return {};
}

Result<void> probe_pid_namespace() {
    Pipe pipe = make_pipe("to a probe").value();
    std::fflush(nullptr);
    const pid_t child = ::fork();
    if (child < 0) return system_error("cannot fork", errno);
    if (child == 0) probe(pipe.write_end.get());
    pipe.write_end.reset();
    const std::string reason = read_report(pipe.read_end.get());
    if (wait_for_exit(child) == 0 && reason.empty()) return {};
    return Error{Errc::kSystem, reason.empty() ? "a new pid namespace ended at once" : reason};
}

}  // namespace ddprun::agent
