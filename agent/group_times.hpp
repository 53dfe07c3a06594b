#pragma once
// GroupTimes: when the phases of a worker group of this node began and ended. Pure.

#include <optional>
#include <vector>

#include "agent/time_account.hpp"
#include "common/clock.hpp"
#include "common/step_times.hpp"
#include "rendezvous/protocol/messages.hpp"

namespace ddprun::agent {

/// A time in which nothing goes on, whatever it interrupts.
struct Pause {
    TimePoint from;
    TimePoint to;
};

/// One worker group of this node; a time is absent until it is known.
struct GroupTimes {
    protocol::Assignment assignment;
    TimePoint waited_since;  ///< for this group: the start of the agent, or the end of the group before
    TimePoint assigned_at;
    std::optional<TimePoint> started_at = {};     ///< all its workers run
    std::optional<TimePoint> stop_began_at = {};  ///< or all workers had succeeded
    std::optional<TimePoint> ended_at = {};       ///< no process is left
    /// How long before the stop the first sign of its reason was seen, on any node; absent: there was no sign of it
    /// before.
    std::optional<Duration> detected_after = {};
    std::vector<Pause> pauses = {};  ///< waits before it, and times in which its workers were held; they do not overlap
    StepTimes steps = {};            ///< known when it has ended
    TimeAccount time = {};           ///< known when it has ended; see account_of()
};

/// Accounts for the time of a group until it ended, or until `now` if it has not. `names_steps`: the program names its
/// steps, so a group without one has spent its run on restoring.
[[nodiscard]] TimeAccount account_of(const GroupTimes& group, bool names_steps, TimePoint now);
/// Accounts for a time without a group: rendezvous, but for the pauses.
[[nodiscard]] TimeAccount account_of_wait(TimePoint from, TimePoint to, const std::vector<Pause>& pauses);

}  // namespace ddprun::agent
