#pragma once
// The time for which this process has stood still, as on a suspended machine, as far as a waiting thread has noticed.
// Any thread.

#include "common/clock.hpp"

namespace ddp::detail {

/// Notes a time in which this process did not run. What several threads note counts once.
void note_paused(ddprun::TimePoint began, ddprun::TimePoint ended);
/// Returns the sum of these times.
[[nodiscard]] ddprun::Duration paused_time();

}  // namespace ddp::detail
