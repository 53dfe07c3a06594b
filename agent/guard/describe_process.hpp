#pragma once
// Describes a process for messages about what is left of a job.

#include <sys/types.h>

#include <string>

namespace ddprun::agent {

/// Returns "71 (train, state D in nfs_wait)", or the pid alone if the process has ended. The pid is that which the user
/// sees (host_pid.hpp).
[[nodiscard]] std::string describe_process(pid_t pid);

}  // namespace ddprun::agent
