#pragma once
// How ddprun becomes two processes: the guard above, the agent below (docs/design/001). Call from the main thread,
// before any other thread, child process or io_context exists.

#include <filesystem>

#include "common/unique_fd.hpp"

namespace ddprun::agent {

/// Where ddprun-guard is: beside the running program, or in ../libexec/ddprun of it.
/// Throws ErrorException (kNotFound) that lists the places.
[[nodiscard]] std::filesystem::path find_guard();

/// Forks. The parent becomes the guard by exec and never returns; its pid stays the one that the caller's shell knows.
/// Returns in the child, which is the agent, in a session of its own: AgentConfig::guard_pipe, which reads end-of-file
/// when the guard is gone. When the guard cannot be executed both processes end, with a message and exit code 70.
/// Throws ErrorException when there is no process or descriptor to be had.
[[nodiscard]] UniqueFd become_guarded_agent(const std::filesystem::path& guard_path);

}  // namespace ddprun::agent
