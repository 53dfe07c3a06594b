#pragma once
// The two ways in which this backend waits: polls, which Backoff spaces out, and run_bounded, which makes a call that
// may never return on a thread of its own. Every wait has a deadline.

#include <functional>

#include "common/clock.hpp"

namespace ddp::detail {

/// Runs `work` on a new thread and waits for it until `deadline`. Returns false if it is still running: the thread is
/// then left behind. So `work` must own, by value or shared_ptr, all that it touches, and must not throw. Also returns
/// false if no thread could be made.
[[nodiscard]] bool run_bounded(std::function<void()> work, ddprun::TimePoint deadline);

/// Chooses the pause before the next poll (exponential backoff): none at first, because most waits are short, then up
/// to 1 ms.
class Backoff {
public:
    [[nodiscard]] ddprun::Duration next();
    void restart() { count_ = 0; }
    /// Takes the next pause on this thread.
    void pause();

private:
    int count_ = 0;
};

}  // namespace ddp::detail
