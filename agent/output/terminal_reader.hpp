#pragma once
// Finds out whether a worker waits for a line that is being typed: the terminal ends the line of its prompt then, by
// the echo of the user's Enter, and no worker prints that. Used by Console, through Worker. Any thread.

#include <sys/types.h>

#include <functional>

namespace ddprun::agent {

enum class TerminalRead {
    kWaiting,  ///< a process reads a line from the terminal, which echoes it
    kNone,
    kEnded,  ///< the process has ended
};

/// Returns whether the process, or one below it, reads a line from the terminal that is this process's stdin. kNone if
/// /proc does not show the system call in which a process is.
[[nodiscard]] TerminalRead terminal_read(pid_t pid);

/// Returns terminal_read() of the process whose output it belongs to.
using ReadCheck = std::function<TerminalRead()>;

}  // namespace ddprun::agent
