#pragma once
// Pauses: finds the pauses of a rank, in which it did not run, from its looks at others, which it takes much more often
// than every kSilence / 2 while it waits. A pause shows nothing about the others. In a short one the rank waited for a
// core, while others ran. In a long one, as on a suspended machine, perhaps none of them ran, and some go on later than
// others: so no deadline passes in it.

#include <vector>

#include "common/clock.hpp"

namespace ddp::detail {

class Pauses {
public:
    /// Begins, now, to wait for something that was called at `called`.
    void begin(ddprun::TimePoint called, ddprun::TimePoint now);
    /// Looks again. Returns the time since the last look or begin() in which the rank did not run.
    ddprun::Duration look(ddprun::TimePoint now);
    /// Returns the time to which pauses have moved a limit of something that was called at `called`. A limit that lies
    /// in a short pause moves to its end. After a long one as much is left of a limit as before, but no more than the
    /// pause took, and at least kReporting. What lies between the call and begin() may be a queue instead of a pause,
    /// so it leaves 2 * kReporting.
    [[nodiscard]] ddprun::TimePoint moved(ddprun::TimePoint limit, ddprun::TimePoint called) const;

private:
    struct Pause {
        ddprun::TimePoint began;
        ddprun::TimePoint ended;
        bool may_be_queue = false;

        [[nodiscard]] ddprun::TimePoint moved(ddprun::TimePoint limit, ddprun::TimePoint called) const;
    };

    void add(const Pause& pause);

    std::vector<Pause> pauses_;  ///< the last kMaxPauses, which are enough: others concern no operation in progress
    ddprun::TimePoint looked_;
};

}  // namespace ddp::detail
