#pragma once
// Compares two failures of one worker group: is the one that was reported first a consequence of the other? Pure.
// docs/design/002-coordinator.md has the evidence and why it is weighed this way.

#include "common/clock.hpp"
#include "rendezvous/protocol/messages.hpp"

namespace ddprun::diagnosis {

using namespace protocol;  // the messages are what this room is about

/// Returns whether the final report of the worker says that it lost a peer (a connection that a peer has closed,
/// worker_lib's PeerLost). Then another rank failed before it.
[[nodiscard]] bool lost_a_peer(const FailureReport& failure);

/// A failure and when it began by the daemon's clock: when it was reported, less FailureReport::failing_for.
struct TimedFailure {
    const FailureReport& report;
    TimePoint began;
};

/// Returns whether `later`, which was reported after `first`, is the cause of `first`.
[[nodiscard]] bool explains(const TimedFailure& later, const TimedFailure& first);

}  // namespace ddprun::diagnosis
