#pragma once
// Connects to a peer whose address may not be reachable for a while, as when the network between two nodes is cut.
// Any thread.

#include <functional>
#include <string>

#include "common/clock.hpp"
#include "common/error.hpp"
#include "common/system/unique_fd.hpp"
#include "worker_lib/src/native/protocol/deadlines.hpp"

namespace ddp::detail {

/// The times after which connect_when_reachable() reports a silence, and gives up. Only tests choose other ones.
struct ReachLimits {
    ddprun::TimePoint deadline;
    ddprun::Duration noticed = kConnectNoticed;
    ddprun::Duration unanswered = kUnansweredTolerated;
    ddprun::Duration unreachable = kUnreachableTolerated;
};

/// Connects to a numeric address before `limits.deadline`. Tries again for `limits.unanswered` while the address does
/// not answer, because its host may only be busy, and for `limits.unreachable` while the system reports it as
/// unreachable, because the network may come back. An address that refuses the connection is an error at once.
/// note   is called with true when the address has not been reached for `limits.noticed`, and with false when it has
///        been reached after that
[[nodiscard]] ddprun::Result<ddprun::UniqueFd> connect_when_reachable(const std::string& address, int port,
                                                                      const ReachLimits& limits,
                                                                      const std::function<void(bool)>& note);

}  // namespace ddp::detail
