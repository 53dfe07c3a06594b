#pragma once
// Whether another process of this machine has ended, or is stopped, as its kernel says.

#include <sys/types.h>

#include <string_view>

#include "common/unique_fd.hpp"

namespace ddp::detail {

/// Becomes readable when the process ends. None for 0 and our own process, and where pidfd does not exist or is
/// forbidden: then only deadlines tell. Throws Error{PeerLost} if it has ended already: it is `name`'s, that of `rank`.
[[nodiscard]] ddprun::UniqueFd watch_process(pid_t pid, std::string_view name, int rank);

/// False where nothing is known.
[[nodiscard]] bool has_ended(const ddprun::UniqueFd& process);

/// Its number, as this process sees it, if it is stopped (a signal, a debugger); 0: it is not, or nothing is known.
[[nodiscard]] pid_t stopped_pid(const ddprun::UniqueFd& process);

}  // namespace ddp::detail
