#pragma once
// Splits ddprun into two processes: the guard above, and below it the agent or the launcher of emulated nodes
// (docs/design/001). Call from the main thread, before any other thread, child process or io_context exists.

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "common/system/unique_fd.hpp"

namespace ddprun::agent {

/// Returns the path of ddprun-guard: beside the running program, or in ../libexec/ddprun of it.
/// Throws ErrorException (kNotFound) that lists both paths.
[[nodiscard]] std::filesystem::path find_guard();

/// The session or process group that the process below the guard leads.
enum class Leads : std::uint8_t {
    kSession,  ///< a session without the terminal, whose Ctrl-C then reaches the guard alone
    kGroup,    ///< a process group in the session of a launcher without a terminal (docs/design/014)
};

/// Settings of the processes above the agent.
struct GuardSettings {
    Leads leads = Leads::kSession;
    std::string control_group;   ///< of the fence (FenceGroup), which then gets a keeper; empty: none
    bool pid_namespace = false;  ///< the agent is process 1 of one (pid_namespace.hpp)
};

/// The agent's ends of pipes. The guard holds the others, or the same.
struct GuardPipes {
    UniqueFd guard_pipe;       ///< AgentConfig::guard_pipe, which reads end-of-file when the guard has ended
    UniqueFd keeper_lifeline;  ///< to be held as long as the agent lives; invalid: there is no keeper
};

/// Forks. The parent becomes the guard by exec and never returns; it keeps the pid that the caller's shell knows.
/// Returns in the child, which the kernel continues, should it be stopped, when the guard ends: then it can read the
/// end-of-file. If the guard cannot be executed, both processes end with a message and exit code 70.
/// Throws ErrorException if no process or descriptor is left.
[[nodiscard]] GuardPipes become_guarded(const std::filesystem::path& guard_path, const GuardSettings& settings = {});

}  // namespace ddprun::agent
