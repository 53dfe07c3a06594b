#pragma once
// Makes the pid namespace whose process 1 is the agent (docs/design/019): when process 1 ends, the kernel ends all
// processes of its namespace. Used by become_guarded(), and before it by the launcher, as a probe. Main thread.

#include <sys/types.h>

#include "common/error.hpp"

namespace ddprun::agent {

/// Forks a process that is the first one of a new pid namespace. Returns its pid, and 0 in that process. This process
/// becomes its parent, and must be a child subreaper; it may have threads that wait for ever. Without the privilege to
/// make a pid namespace, the new process is in a user namespace, too, and keeps its user and group. Errors: one clause.
[[nodiscard]] Result<pid_t> fork_into_pid_namespace();

/// Gives this process, the first one of a pid namespace, a /proc of that namespace, which its children see too.
/// Afterwards ddprun::host_pid() translates. Errors: one clause.
[[nodiscard]] Result<void> enter_pid_namespace();

/// Tries both in a child process. Errors: one clause, the reason why this machine does not allow it.
[[nodiscard]] Result<void> probe_pid_namespace();

}  // namespace ddprun::agent
