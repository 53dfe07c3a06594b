#include "agent/guard/start_guard.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>

#include "common/error.hpp"
#include "common/exit_codes.hpp"
#include "common/system/process.hpp"
#include "common/system/signals_blocked.hpp"

namespace ddprun::agent {
namespace {

/// Turns this process, the parent, into ddprun-guard.
[[noreturn]] void become_guard(const std::filesystem::path& guard_path, pid_t agent, const UniqueFd& lifeline) {
    const std::string pid = std::to_string(agent);
    const std::string fd = std::to_string(lifeline.get());
    ::fcntl(lifeline.get(), F_SETFD, 0);  // survives the exec; the guard sets the flag again
    ::execl(guard_path.c_str(), "ddprun-guard", "--agent-pid", pid.c_str(), "--lifeline", fd.c_str(), nullptr);

    const std::string text =
        fmt::format("[ddprun] cannot execute {}: {}. Reinstall ddprun, or keep ddprun-guard beside it.\n",
                    guard_path.string(), std::strerror(errno));
    std::fputs(text.c_str(), stderr);  // unlike fmt::print it does not throw where stderr is lost: the agent must end
    ::kill(agent, SIGKILL);
    ::waitpid(agent, nullptr, 0);
    ::_exit(exit_code::kInternal);
}

}  // namespace

std::filesystem::path find_guard() {
    std::error_code ignored;  // an unreadable link leaves an empty path, and the message below names it
    const auto directory = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
    const std::filesystem::path candidates[] = {directory / "ddprun-guard",
                                                directory.parent_path() / "libexec/ddprun/ddprun-guard"};
    for (const auto& path : candidates) {
        if (::access(path.c_str(), X_OK) == 0) return path;
    }
    throw ErrorException(
        {Errc::kNotFound, fmt::format("cannot find ddprun-guard: there is neither {} nor {}. Reinstall ddprun.",
                                      candidates[0].string(), candidates[1].string())});
}

UniqueFd become_guarded(const std::filesystem::path& guard_path, Leads leads) {
    Pipe pipe = make_pipe("to the guard").value();

    // Signals stay blocked until the guard's loop takes them: none may kill the guard while the agent runs. The agent
    // gets its signals back when this function returns.
    const SignalsBlocked blocked;
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    std::fflush(nullptr);  // buffered output would be written twice

    const pid_t guarded = ::fork();
    if (guarded < 0) {
        throw ErrorException(system_error("cannot fork ddprun from its guard", errno));
    }
    if (guarded > 0) {
        pipe.read_end.reset();
        become_guard(guard_path, guarded, pipe.write_end);
    }
    if (leads == Leads::kSession)
        ::setsid();
    else
        ::setpgid(0, 0);
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    return std::move(pipe.read_end);  // only the guard holds the other end now
}

}  // namespace ddprun::agent
