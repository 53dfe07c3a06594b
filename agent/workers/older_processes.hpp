#pragma once
// Ends what an earlier agent of this job has left on this machine: workers of an older generation, and their children,
// that would use GPUs, files and ports beside the new ones. Called by LocalGroup before the first group; one thread.

#include <string>
#include <string_view>

#include "common/ids.hpp"

namespace ddprun::agent {

/// The variable by which processes of a job are recognized: the session of its daemon, which no other job has.
inline constexpr char kSessionVariable[] = "DDPRUN_SESSION";

/// Returns whether the environment of a process (/proc/PID/environ) shows that it belongs to the job of `session`, and
/// to a generation older than `generation`. Pure.
[[nodiscard]] bool belongs_to_older_group(std::string_view environment, std::string_view session,
                                          Generation generation);

/// Sends SIGKILL to these processes of this user and waits a second at most until they have ended. Returns how many
/// there were. An empty session, of an older daemon, has none.
int end_older_processes(const std::string& session, Generation generation);

}  // namespace ddprun::agent
