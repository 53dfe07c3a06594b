#pragma once
// How ddprun becomes two processes: the guard above, the agent below, or the launcher of emulated nodes
// (docs/design/001). Call from the main thread, before any other thread, child process or io_context exists.

#include <cstdint>
#include <filesystem>

#include "common/unique_fd.hpp"

namespace ddprun::agent {

/// Where ddprun-guard is: beside the running program, or in ../libexec/ddprun of it.
/// Throws ErrorException (kNotFound) that lists the places.
[[nodiscard]] std::filesystem::path find_guard();

/// What the child below the guard leads.
enum class Leads : std::uint8_t {
    kSession,  ///< away from the terminal, whose Ctrl-C then reaches the guard alone
    kGroup,    ///< in the session of a launcher that has left the terminal: all its nodes share one (docs/design/014)
};

/// Forks. The parent becomes the guard by exec and never returns; its pid stays the one that the caller's shell knows.
/// Returns in the child: AgentConfig::guard_pipe, which reads end-of-file when the guard is gone. When the guard cannot
/// be executed both processes end, with a message and exit code 70.
/// Throws ErrorException when there is no process or descriptor to be had.
[[nodiscard]] UniqueFd become_guarded(const std::filesystem::path& guard_path, Leads leads = Leads::kSession);

}  // namespace ddprun::agent
