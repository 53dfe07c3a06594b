#pragma once
// Waiting: measures how long the steps of a run waited for gradients, and how much of that backward did not hide.
//
// It uses the trainer's clock, not ReducerStats::exposed, which begins with finish_backward. If ranks outnumber
// cores, the last buckets may use this thread's core, and be done, before finish_backward begins.

#include <chrono>
#include <vector>

#include "ddp/context.hpp"

namespace train {

class Waiting {
public:
    using Clock = std::chrono::steady_clock;

    /// Records that backward has computed a gradient. The wait begins with the last one of a step.
    void computed(Clock::time_point at = Clock::now()) { computed_ = at; }
    /// Records that this step's gradients are averages: the wait ends.
    void averaged(Clock::time_point at = Clock::now()) { steps_.push_back(at - computed_); }

    /// Returns the wait of this rank in all steps so far.
    [[nodiscard]] Clock::duration total() const;

    /// Returns the median over the steps of the shortest wait of all ranks, in milliseconds; 0 without steps. The rank
    /// that waits least is the last one to end its backward, so it waits for communication alone; the others also wait
    /// for its backward. Collective, with the same number of steps on every rank.
    [[nodiscard]] double exposed_ms(ddp::Context& context) const;

private:
    Clock::time_point computed_;
    std::vector<Clock::duration> steps_;
};

}  // namespace train
