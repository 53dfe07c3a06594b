#pragma once
// State of other processes of this machine, as the kernel reports it: whether one has ended or is stopped.

#include <sys/types.h>

#include <string_view>

#include "common/system/unique_fd.hpp"

namespace ddp::detail {

/// Returns a descriptor that becomes readable when the process ends. None for 0 and our own process, and where pidfd
/// does not exist or is forbidden: then only deadlines show its end. Throws Error{PeerLost} if it has ended already.
/// name, rank   of the rank whose process it is, for errors
[[nodiscard]] ddprun::UniqueFd watch_process(pid_t pid, std::string_view name, int rank);

/// Returns whether the process has ended; false also where that is not known.
[[nodiscard]] bool has_ended(const ddprun::UniqueFd& process);

/// Returns the pid, in this process's namespace, if the process is stopped (by a signal or a debugger); 0 if it is not,
/// or if nothing is known.
[[nodiscard]] pid_t stopped_pid(const ddprun::UniqueFd& process);

}  // namespace ddp::detail
