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

int wait_for_exit(pid_t child) {
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/// Reports the reason of a failure to the other end of the pipe, and ends this child process of the probe.
[[noreturn]] void end_probe(const Result<void>& result, int pipe) {
    if (result) ::_exit(0);
    const std::string& reason = result.error().message;
    [[maybe_unused]] const ssize_t ignored = ::write(pipe, reason.data(), reason.size());  // the exit code says no
    ::_exit(1);
}

[[noreturn]] void probe(int pipe) {
    if (const auto prepared = prepare_pid_namespace(); !prepared) end_probe(prepared, pipe);
    const pid_t first = ::fork();
    if (first < 0) end_probe(system_error("cannot fork into a new pid namespace", errno), pipe);
    if (first == 0) end_probe(enter_pid_namespace(), pipe);
    ::_exit(wait_for_exit(first));
}

}  // namespace

Result<void> prepare_pid_namespace() {
    if (::unshare(CLONE_NEWPID) == 0) return {};
    if (errno != EPERM) return system_error("no pid namespace can be made", errno);
    const uid_t user = ::geteuid();
    const gid_t group = ::getegid();
    if (::unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) return system_error("no user namespace can be made", errno);
    return keep_ids(user, group);
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
    std::string reason(512, '\0');
    const ssize_t size = ::read(pipe.read_end.get(), reason.data(), reason.size());
    reason.resize(static_cast<std::size_t>(size > 0 ? size : 0));
    if (wait_for_exit(child) == 0) return {};
    return Error{Errc::kSystem, reason.empty() ? "a new pid namespace ended at once" : reason};
}

}  // namespace ddprun::agent
