#pragma once
// What the kernel says about a process, for verdicts on a job that stands still: its state, and whose child it is.

#include <sys/types.h>

#include <string>
#include <string_view>

namespace ddprun {

/// "running", "stopped" (a signal, a debugger), "in the kernel" (state D, which not even SIGKILL ends), "ended", or
/// "unknown": /proc does not let us see it.
[[nodiscard]] std::string process_state(pid_t pid);

/// The same from the text of /proc/PID/stat. Pure.
[[nodiscard]] std::string parse_process_state(std::string_view stat);

/// The parent of a process; -1: there is no such process, or /proc does not let us see it.
[[nodiscard]] pid_t parent_of(pid_t pid);

/// The same from the text of /proc/PID/stat. Pure.
[[nodiscard]] pid_t parse_parent(std::string_view stat);

/// Whether `pid` is `ancestor`, its child, or a child's child and so on; false when a process between them has ended.
[[nodiscard]] bool is_below(pid_t pid, pid_t ancestor);

}  // namespace ddprun
