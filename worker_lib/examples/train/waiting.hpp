#pragma once
// How long the steps of a run waited for gradients, and how much of that nothing could hide.
//
// Both are taken by the trainer's clock, not from ReducerStats::exposed: that begins with finish_backward, and where
// ranks outnumber cores the buckets launched last may have taken this thread's core, and be done, before it comes to
// that.

#include <chrono>
#include <vector>

#include "ddp/context.hpp"

namespace train {

class Waiting {
public:
    using Clock = std::chrono::steady_clock;

    /// Backward has computed a gradient. With the last one of a step its wait begins.
    void computed(Clock::time_point at = Clock::now()) { computed_ = at; }
    /// This step's gradients are averages of all ranks'.
    void averaged(Clock::time_point at = Clock::now()) { steps_.push_back(at - computed_); }

    /// Of this rank, in all steps so far.
    [[nodiscard]] Clock::duration total() const;

    /// Of all ranks: the median over the steps of what the rank waited that waited least. That is the last one to end
    /// its backward, so it waits for communication alone; the others wait for its backward as well.
    /// Milliseconds, 0 without steps. Collective: as many steps on every rank.
    [[nodiscard]] double exposed_ms(ddp::Context& context) const;

private:
    Clock::time_point computed_;
    std::vector<Clock::duration> steps_;
};

}  // namespace train
