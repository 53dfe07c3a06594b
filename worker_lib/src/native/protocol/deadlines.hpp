#pragma once
// Deadlines: the times at which waiting ranks give up. They form chains: one waits for its neighbour, which waits for a
// counterpart on another node, which waits for a neighbour of its own that does nothing. Only the last one sees the
// culprit, so it must give up and report first. The others wait a little longer.
//
// Neighbours see each other's memory: a rank that waits for messages increments a word there, and is not a culprit. So
// a rank gives up on a silent neighbour at the deadline. It gives up on messages kReporting later, because the senders
// may be about to report why, and last on neighbours that all wait for messages themselves.

#include <chrono>

#include "common/clock.hpp"

namespace ddp::detail {

/// Time for a report of the culprit to get from node to node.
inline constexpr std::chrono::milliseconds kReporting{750};
/// Between nodes, a rank that sees the culprit gives up this much earlier than one that only suspects a peer.
inline constexpr std::chrono::milliseconds kDoubt{150};
/// Limit for the final report to and from a peer after a failure.
inline constexpr std::chrono::milliseconds kFinalReportTimeout{250};
/// A rank that waits for messages signals that at least ten times in this time, unless it is stopped. Longer than a
/// rank that is ready to run has to wait for a core on a busy machine.
inline constexpr std::chrono::milliseconds kSilence{500};

/// When the host of a connected peer has been silent for this long, the flight record shows that. The daemon gives up a
/// silent node after 3 s, so a dead host may be shown as well: its agent does not answer the inquiry that follows.
inline constexpr std::chrono::milliseconds kUnreachableNoticed{2500};
/// The same while connecting to a peer. The kernel has sent three requests by then, at 0, 1 and 3 s, and is about to
/// send a fourth, so a host that starts slowly is not shown.
inline constexpr std::chrono::seconds kConnectNoticed{7};
/// For this long a new group tries to connect to a host that does not answer, because the host may only be busy.
inline constexpr std::chrono::seconds kUnansweredTolerated{60};
/// For this long at least a group waits for the host of a peer that cannot be reached, because the network may come
/// back.
inline constexpr std::chrono::seconds kUnreachableTolerated{15};

[[nodiscard]] inline ddprun::TimePoint extended(ddprun::TimePoint deadline, ddprun::Duration by) {
    return deadline < ddprun::TimePoint::max() - by ? deadline + by : ddprun::TimePoint::max();
}

/// How long after its deadline a rank gives up waiting for messages from other nodes.
inline constexpr ddprun::Duration kNetworkExtra = kReporting;
/// The same while messages from other nodes still arrive: one of them may carry the reason.
inline constexpr ddprun::Duration kArrivingExtra = 2 * kReporting;
/// The same for ranks of its node that wait for messages: these give up first, in any case.
inline constexpr ddprun::Duration kFinishingExtra = 4 * kReporting;

}  // namespace ddp::detail
