#pragma once
// Decides whether the failure that was reported first is a consequence of another one of the same worker group. Pure.
// docs/design/015-culprit-of-a-failure.md has the evidence and why it is weighed this way.

#include "common/clock.hpp"
#include "rendezvous/protocol/messages.hpp"

namespace ddprun::diagnosis {

using namespace protocol;  // the diagnosis works on these messages

/// Returns whether another rank failed before the worker: its flight record shows that, or its final report says that a
/// peer has closed a connection.
[[nodiscard]] bool lost_a_peer(const FailureReport& failure);

/// A failure and when it began by the daemon's clock: when it was reported, less FailureReport::failing_for.
struct TimedFailure {
    const FailureReport& report;
    TimePoint began;
};

/// Returns whether `later`, which was reported after `first`, is the cause of `first`.
[[nodiscard]] bool explains(const TimedFailure& later, const TimedFailure& first);

}  // namespace ddprun::diagnosis
