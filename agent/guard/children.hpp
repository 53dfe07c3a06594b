#pragma once
// Lists the children of a single-threaded process, from /proc. Allocates nothing, so that the guard may call it at any
// time; Strays and the launcher of emulated nodes call it too.

#include <sys/types.h>

namespace ddprun::agent {

/// Writes up to `capacity` pids of the children of the calling thread to `out` and returns how many; -1 when /proc
/// cannot be read. The list is a snapshot: a child that starts or ends meanwhile may be missing, so callers repeat the
/// call until waitpid(2) reports that there is no child.
[[nodiscard]] int list_children(pid_t* out, int capacity) noexcept;

/// Does the same by reading the parent of every process, for kernels without CONFIG_PROC_CHILDREN. Much slower.
[[nodiscard]] int list_children_by_scan(pid_t* out, int capacity) noexcept;

}  // namespace ddprun::agent
