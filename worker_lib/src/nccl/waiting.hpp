#pragma once
// The two ways in which this backend waits: it polls with growing pauses, and it makes calls that may never return on a
// thread of their own. Nothing here waits without a deadline.

#include <functional>

#include "common/clock.hpp"

namespace ddp::detail {

/// Runs `work` on a new thread and waits for it until `deadline`. False: it is still running and will be left alone, so
/// `work` must own, by value or shared_ptr, all that it touches, and must not throw. Also false if no thread could be
/// made.
[[nodiscard]] bool run_bounded(std::function<void()> work, ddprun::TimePoint deadline);

/// How long to pause before polling again: not at all at first, for most waits are short, then up to 1 ms.
class Pauses {
public:
    [[nodiscard]] ddprun::Duration next();
    void restart() { count_ = 0; }
    /// Takes the next pause on this thread.
    void pause();

private:
    int count_ = 0;
};

}  // namespace ddp::detail
