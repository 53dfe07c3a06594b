#pragma once
// How long the steps of a run waited for gradients, and how much of that nothing could hide.

#include <chrono>
#include <vector>

#include "ddp/context.hpp"

namespace train {

class Waiting {
public:
    /// After each step: what this rank's reducer has waited so far, in all of them (ReducerStats::exposed).
    void step(std::chrono::nanoseconds so_far);

    /// Of all ranks: the median over the steps of what the rank waited that waited least. That is the last one to end
    /// its backward, so it waits for communication alone; the others wait for its backward as well.
    /// Milliseconds, 0 without steps. Collective: as many steps on every rank.
    [[nodiscard]] double exposed_ms(ddp::Context& context) const;

private:
    std::chrono::nanoseconds before_{};
    std::vector<double> steps_ms_;
};

}  // namespace train
