#pragma once
// The children of a process with one thread, from /proc. Allocates nothing, so that the guard may call it at any time.

#include <sys/types.h>

namespace ddprun::agent {

/// Writes up to `capacity` pids of the children of the calling thread to `out` and returns how many; -1 when /proc
/// cannot be read. A snapshot: a child that is born or ends meanwhile may be missing, so callers look again until
/// waitpid(2) says that there is none.
[[nodiscard]] int list_children(pid_t* out, int capacity) noexcept;

/// The same by reading every process's parent, for kernels without CONFIG_PROC_CHILDREN. Slower by far.
[[nodiscard]] int list_children_by_scan(pid_t* out, int capacity) noexcept;

}  // namespace ddprun::agent
