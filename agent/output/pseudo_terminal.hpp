#pragma once
// Pseudo terminals for the output of workers (--pty, docs/design/025): a worker writes to one end as to a terminal, and
// the agent reads the other one as a pipe. Used by WorkerSpecBuilder and WorkerStream. One thread.

#include <sys/ioctl.h>

#include <string_view>

#include "common/error.hpp"
#include "common/system/unique_fd.hpp"

namespace ddprun::agent {

/// Both ends of a pseudo terminal, which are close-on-exec.
struct PseudoTerminal {
    UniqueFd read_end;   ///< for the agent; fails with EIO when no process has the other end open any more
    UniqueFd write_end;  ///< for the worker: it cannot be read, and passes bytes on unchanged
};

/// Returns the part of a terminal of this size that is left behind `label`; 0 columns or rows mean that they are
/// unknown. Pure.
[[nodiscard]] winsize room_behind(std::string_view label, winsize terminal);

/// Makes a pseudo terminal of this size, which becomes no process's controlling terminal. Errors: the errno, with what
/// to do.
[[nodiscard]] Result<PseudoTerminal> make_pseudo_terminal(winsize size);

/// Gives the pseudo terminal with this read end another size. Returns whether that has changed it; false for a pipe.
bool resize(int read_end, winsize size);

}  // namespace ddprun::agent
