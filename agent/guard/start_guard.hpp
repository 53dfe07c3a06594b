#pragma once
// Splits ddprun into two processes: the guard above, and below it the agent or the launcher of emulated nodes
// (docs/design/001). Call from the main thread, before any other thread, child process or io_context exists.

#include <cstdint>
#include <filesystem>

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

/// Forks. The parent becomes the guard by exec and never returns; it keeps the pid that the caller's shell knows. In
/// the child, returns AgentConfig::guard_pipe, which reads end-of-file when the guard has ended. If the guard cannot be
/// executed, both processes end with a message and exit code 70.
/// Throws ErrorException if no process or descriptor is left.
[[nodiscard]] UniqueFd become_guarded(const std::filesystem::path& guard_path, Leads leads = Leads::kSession);

}  // namespace ddprun::agent
