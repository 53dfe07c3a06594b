#pragma once
// Pauses: finds the pauses of a waiting rank, in which it did not run itself, as on a suspended machine, from its looks
// at others, which it takes much more often than every kSilence / 2. A pause shows nothing about the others, because
// they may not have run either. So no deadline passes in one: what is left of it begins to count again afterwards.

#include "common/clock.hpp"

namespace ddp::detail {

class Pauses {
public:
    /// Begins a wait. `now` may lie in the past: a pause may come before the first look.
    void begin(ddprun::TimePoint now) { looked_ = now; }
    /// Looks again. Returns the time since the last look or begin() in which the rank did not run.
    ddprun::Duration look(ddprun::TimePoint now);
    /// Returns the time to which the pause that look() has just found moves `limit`. If the limit lies in the pause, as
    /// much of it is left afterwards as was before. In any case at least `grace` is left, or as much as the rank has
    /// missed if that is less, in which it reads what has arrived. On a machine that is always short of cores only
    /// some pauses move limits, so that they are reached in the end.
    [[nodiscard]] ddprun::TimePoint moved(ddprun::TimePoint limit, ddprun::Duration grace);

private:
    ddprun::TimePoint looked_;
    ddprun::TimePoint began_;  ///< of the last pause
    ddprun::TimePoint ended_;
    ddprun::Duration missed_{};
    bool counted_ = false;       ///< it has moved a limit
    ddprun::TimePoint episode_;  ///< begin of the time in which a limited number of pauses may move limits
    int count_ = 0;              ///< pauses in it that have
};

}  // namespace ddp::detail
