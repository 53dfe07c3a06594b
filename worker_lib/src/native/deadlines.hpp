#pragma once
// Who gives up when. Waiting ranks form chains: one waits for its neighbour, which waits for a counterpart on another
// node, which waits for a neighbour of its own that does nothing. The last one knows the culprit, so it must be the
// first to give up and to tell; the others wait a little longer.
//
// Neighbours see each other's memory: a rank that waits for messages counts up a word there, and is no culprit. So a
// rank gives up for a silent neighbour at the deadline; for messages kTelling later, as those who sent none may be
// about to tell why; and for neighbours of which all wait for messages themselves, last.

#include <algorithm>
#include <chrono>

#include "common/clock.hpp"

namespace ddp::detail {

inline constexpr std::chrono::milliseconds kTelling{750};  ///< for the culprit's name to get from node to node
/// For who knows the culprit to be ahead of who only suspects one, between nodes.
inline constexpr std::chrono::milliseconds kDoubt{150};
/// For the last words to and from a peer, when something has failed already.
inline constexpr std::chrono::milliseconds kFarewell{250};
/// A rank that waits for messages says so at least ten times in this time, unless it is stopped. Longer than one that
/// is ready to run has to wait for a core on a busy machine: of 1,100 ranks that were stopped, with 50 processes on two
/// cores beside, 200 ms blamed an innocent neighbour twice.
inline constexpr std::chrono::milliseconds kSilence{500};

/// Of the time between two looks at others, what says nothing about them: the one who looks did not run itself, and on
/// a machine that stood still nobody did.
[[nodiscard]] inline ddprun::Duration unwatched(ddprun::TimePoint last, ddprun::TimePoint now) {
    return std::max<ddprun::Duration>(now - last - kSilence / 2, ddprun::Duration::zero());
}

[[nodiscard]] inline ddprun::TimePoint extended(ddprun::TimePoint deadline, std::chrono::milliseconds by) {
    return deadline < ddprun::TimePoint::max() - by ? deadline + by : ddprun::TimePoint::max();
}

/// For messages from other nodes.
[[nodiscard]] inline ddprun::TimePoint network_deadline(ddprun::TimePoint deadline) {
    return extended(deadline, kTelling);
}
/// The same where messages trickle on: what there is to read may be the reason.
[[nodiscard]] inline ddprun::TimePoint last_network_deadline(ddprun::TimePoint deadline) {
    return extended(deadline, 2 * kTelling);
}
/// For ranks of the own node that wait for messages: they are to give up first, however much they doubt.
[[nodiscard]] inline ddprun::TimePoint finishing_deadline(ddprun::TimePoint deadline) {
    return extended(deadline, 4 * kTelling);
}

}  // namespace ddp::detail
