#pragma once
// Looks at the signals that another process handles. Linux (/proc).

#include <sys/types.h>

namespace ddprun {

/// Returns whether the process has a handler for `signal`, or blocks it for longer than a moment, as one that waits for
/// it: then the signal does not end it. True also if that cannot be found out. Takes up to 20 ms if it is blocked.
[[nodiscard]] bool handles_signal(pid_t pid, int signal);

}  // namespace ddprun
