#pragma once
// Connects to a peer whose address may not be reachable for a while, as when the network between two nodes is cut.
// Any thread.

#include <functional>
#include <string>

#include "common/clock.hpp"
#include "common/error.hpp"
#include "common/system/unique_fd.hpp"

namespace ddp::detail {

/// Connects to a numeric address before `deadline`. While the address does not answer, tries again: its host may only
/// be busy. While the system reports it as unreachable, tries again for kUnreachableTolerated at most: a network that
/// is cut for a moment must not end a new group. An address that refuses the connection is an error at once. note
/// called with true when the address has not answered for kUnreachableNoticed, and with false when it has
///        answered after all
[[nodiscard]] ddprun::Result<ddprun::UniqueFd> connect_when_reachable(const std::string& address, int port,
                                                                      ddprun::TimePoint deadline,
                                                                      const std::function<void(bool)>& note);

}  // namespace ddp::detail
