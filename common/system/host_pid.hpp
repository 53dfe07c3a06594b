#pragma once
// Translates pids of an own pid namespace (--fence namespace) to those that the user sees. Main thread.

#include <sys/types.h>

#include "common/system/unique_fd.hpp"

namespace ddprun {

/// Makes host_pid() translate by `host_proc`, a descriptor of the /proc of the namespace above. Called once, by process
/// 1 of the new namespace, which keeps the descriptor for its lifetime.
void translate_pids_by(UniqueFd host_proc) noexcept;

/// Returns the number by which the user can signal the process `pid`: its pid in the namespace of the user. Returns
/// `pid` where no translation is needed, or if the process has been reaped.
[[nodiscard]] pid_t host_pid(pid_t pid) noexcept;

}  // namespace ddprun
