#pragma once
// Of two failures of one worker group: did the first one that was heard of come from the other? Pure. The evidence, and
// why it is weighed so, is in docs/design/002-coordinator.md.

#include "common/clock.hpp"
#include "rendezvous/coordinator/messages.hpp"

namespace ddprun::coordinator {

/// The last that this worker said is that a peer had gone (a connection that a peer has closed, worker_lib's PeerLost):
/// somebody else failed before it.
[[nodiscard]] bool lost_a_peer(const FailureReport& failure);

/// A failure and when it began, by one clock: when it was heard of, less FailureReport::failing_for.
struct TimedFailure {
    const FailureReport& report;
    TimePoint began;
};

/// `later` was heard of after `first` and is what `first` came from.
[[nodiscard]] bool explains(const TimedFailure& later, const TimedFailure& first);

}  // namespace ddprun::coordinator
