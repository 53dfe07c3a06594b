#include "agent/guard/start_guard.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "agent/guard/children.hpp"
#include "agent/guard/descendants.hpp"
#include "agent/guard/keeper.hpp"
#include "agent/guard/pid_namespace.hpp"
#include "common/error.hpp"
#include "common/exit_codes.hpp"
#include "common/system/process.hpp"
#include "common/system/signals_blocked.hpp"

namespace ddprun::agent {
namespace {

/// Returns the children that this process has before it starts any for the job's node. They are not the guard's to
/// kill: ddprund, where this process is the init process of a container, or what a shell has started before its exec.
std::vector<pid_t> list_older_children() {
    std::vector<pid_t> children(Spared().older.size());
    const int count = list_children(children.data(), static_cast<int>(children.size()));
    children.resize(static_cast<std::size_t>(std::max(0, count)));
    return children;
}

/// The keeper of the agent's control group, below this process.
struct Keeper {
    pid_t pid = 0;      ///< 0: none
    UniqueFd lifeline;  ///< it reads end-of-file when all copies of this descriptor are closed
};

/// Starts the keeper in a session of its own: signals to the process groups of this job do not reach it, and it blocks
/// those to itself from its first instruction on.
Keeper start_keeper(const std::filesystem::path& guard_path, const std::string& group) {
    if (group.empty()) return {};
    Pipe pipe = make_pipe("to the keeper").value();
    posix_spawnattr_t attributes;
    ::posix_spawnattr_init(&attributes);
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
    sigset_t all;
    ::sigfillset(&all);
    ::posix_spawnattr_setsigmask(&attributes, &all);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, pipe.read_end.get(), kKeeperLifelineFd);
    std::string name = kKeeperName;
    std::string path = group;
    char* const argv[] = {name.data(), path.data(), nullptr};
    Keeper keeper;
    const int error = ::posix_spawn(&keeper.pid, guard_path.c_str(), &actions, &attributes, argv, environ);
    ::posix_spawn_file_actions_destroy(&actions);
    ::posix_spawnattr_destroy(&attributes);
    if (error != 0) throw ErrorException(system_error("cannot start the keeper of the control group", error));
    keeper.lifeline = std::move(pipe.write_end);
    return keeper;
}

/// Returns the number of `fd`, which survives the exec.
std::string handed_over(const UniqueFd& fd) {
    ::fcntl(fd.get(), F_SETFD, 0);
    return std::to_string(fd.get());
}

/// Turns this process, the parent, into ddprun-guard.
[[noreturn]] void become_guard(const std::filesystem::path& guard_path, pid_t agent, const UniqueFd& lifeline,
                               const Keeper& keeper, const std::vector<pid_t>& older_children,
                               const GuardSettings& settings) {
    std::vector<std::string> arguments{"ddprun-guard", "--agent-pid", std::to_string(agent), "--lifeline",
                                       handed_over(lifeline)};
    if (keeper.pid > 0) {
        arguments.insert(arguments.end(), {"--group", settings.control_group, "--keeper", std::to_string(keeper.pid),
                                           "--keeper-lifeline", handed_over(keeper.lifeline)});
    }
    if (settings.pid_namespace) arguments.insert(arguments.end(), {"--pid-namespace", "1"});
    // The agent leads another session, and a process can only make a session of its own or inherit one. So a process in
    // this session does not descend from the agent.
    if (settings.leads == Leads::kSession)
        arguments.insert(arguments.end(), {"--older-session", std::to_string(::getsid(0))});
    for (const pid_t child : older_children)
        arguments.insert(arguments.end(), {"--older-child", std::to_string(child)});
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    ::execv(guard_path.c_str(), argv.data());

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

GuardPipes become_guarded(const std::filesystem::path& guard_path, const GuardSettings& settings) {
    Pipe pipe = make_pipe("to the guard").value();

    // Signals stay blocked until the guard's loop takes them: none may kill the guard while the agent runs. The agent
    // gets its signals back when this function returns.
    const SignalsBlocked blocked;
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    std::fflush(nullptr);  // buffered output would be written twice
    const std::vector<pid_t> older_children = list_older_children();
    Keeper keeper = start_keeper(guard_path, settings.control_group);

    const pid_t guarded = settings.pid_namespace ? fork_into_pid_namespace().value() : ::fork();
    if (guarded < 0) {
        throw ErrorException(system_error("cannot fork ddprun from its guard", errno));
    }
    if (guarded > 0) {
        pipe.read_end.reset();
        become_guard(guard_path, guarded, pipe.write_end, keeper, older_children, settings);
    }
    // If the guard has died before this line, this process has not been stopped, and reads end-of-file.
    ::prctl(PR_SET_PDEATHSIG, SIGCONT);
    if (settings.leads == Leads::kSession)
        ::setsid();
    else
        ::setpgid(0, 0);
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (settings.pid_namespace) enter_pid_namespace().value();
    return {std::move(pipe.read_end), std::move(keeper.lifeline)};  // only the guard holds the other end now
}

}  // namespace ddprun::agent
