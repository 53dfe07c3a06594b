#pragma once
// ProcessLook: the state of one process as /proc shows it: name, state, parent, and where it waits in the kernel.
// Allocates nothing: the guard and its keeper describe processes that survive SIGKILL by it, and so does the agent. Any
// thread.

#include <sys/types.h>

namespace ddprun::agent {

struct ProcessLook {
    char name[32] = "";      ///< as ps shows it; control characters are replaced
    char state = '\0';       ///< R, S, D, T, Z, …; zero: there is no such process
    pid_t thread = -1;       ///< has that state: the first thread, or one that is left although the first has ended
    pid_t parent = -1;       ///< -1: there is no such process
    char waits_in[64] = "";  ///< in state D: a function of the kernel; empty: it may not be read
};

/// Looks at the process whose folder in `proc` (a descriptor of /proc) is `pid`. Without `waits_in`.
[[nodiscard]] ProcessLook look_at(int proc, pid_t pid) noexcept;
/// Does the same with a /proc of its own, and with `waits_in`.
[[nodiscard]] ProcessLook look_at(pid_t pid) noexcept;

}  // namespace ddprun::agent
