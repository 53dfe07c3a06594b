#pragma once
// Pauses: finds the pauses of a rank, in which it did not run or did not look at others, which it does much more often
// than every kSilence / 2 while it waits. A pause shows nothing about the others. In a short one the rank waited for a
// core, while others ran. In a long one, as on a suspended machine, perhaps none of them ran, and some go on later than
// others: so no deadline passes in it.

#include <vector>

#include "common/clock.hpp"

namespace ddp::detail {

class Pauses {
public:
    /// Begins, at `now`, a wait for what was called at `called`. The time since that call, or since the last look if
    /// that was later, counts as a pause if it is long enough for one. What is called later has to begin later.
    void begin(ddprun::TimePoint called, ddprun::TimePoint now);
    /// Looks again. Returns by how much longer than kSilence / 2 ago the last look or begin() was; zero: no pause.
    ddprun::Duration look(ddprun::TimePoint now);
    /// Returns the time, `extra` after a deadline, at which the rank gives up what was called at `called`. A short
    /// pause in which that time lies moves it to its end. After a long one as much is left of the deadline as before,
    /// but no more than the pause took, and at least kReporting; `extra` follows. What lies between the call and
    /// begin() may be a queue instead of a pause, so it leaves 2 * kReporting. Compare the result with the time of the
    /// last look, not with a later one, because a pause since then has not moved it yet.
    [[nodiscard]] ddprun::TimePoint limit(ddprun::TimePoint deadline, ddprun::Duration extra,
                                          ddprun::TimePoint called) const;

private:
    struct Pause {
        ddprun::TimePoint began;
        ddprun::TimePoint ended;
        bool may_be_queue = false;

        [[nodiscard]] ddprun::Duration took() const { return ended - began; }
        [[nodiscard]] bool is_long() const;
        [[nodiscard]] ddprun::TimePoint moved(ddprun::TimePoint limit, ddprun::TimePoint called) const;
    };

    void add(const Pause& pause);

    std::vector<Pause> pauses_;  ///< since the call, by time; the longest kMaxPauses and the newest
    ddprun::TimePoint looked_;
};

}  // namespace ddp::detail
