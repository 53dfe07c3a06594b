#pragma once
// Reads the state and the parent of a process from /proc, for the diagnosis of a job that makes no progress.

#include <sys/types.h>

#include <string>
#include <string_view>

namespace ddprun {

/// Returns "running", "stopped" (by a signal or a debugger), "in the kernel" (state D, which survives SIGKILL),
/// "ended", or "unknown" if /proc cannot be read.
[[nodiscard]] std::string process_state(pid_t pid);

/// Returns the same from the text of /proc/PID/stat. Pure.
[[nodiscard]] std::string parse_process_state(std::string_view stat);

/// Returns the parent of a process; -1 if there is no such process or /proc cannot be read.
[[nodiscard]] pid_t parent_of(pid_t pid);

/// Returns the same from the text of /proc/PID/stat. Pure.
[[nodiscard]] pid_t parse_parent(std::string_view stat);

/// Returns whether `pid` is `ancestor` or a descendant of it; false if a process between them has ended.
[[nodiscard]] bool is_below(pid_t pid, pid_t ancestor);

}  // namespace ddprun
