#pragma once
// What the kernel says about a process, for verdicts on a job that stands still.

#include <sys/types.h>

#include <string>
#include <string_view>

namespace ddprun {

/// "running", "stopped" (a signal, a debugger), "in the kernel" (state D, which not even SIGKILL ends), "ended", or
/// "unknown": /proc does not let us see it.
[[nodiscard]] std::string process_state(pid_t pid);

/// The same from the text of /proc/PID/stat. Pure.
[[nodiscard]] std::string parse_process_state(std::string_view stat);

}  // namespace ddprun
