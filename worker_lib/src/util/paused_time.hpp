#pragma once
// The time for which threads of this process that wait for peers did not look at them: it stood still, as on a
// suspended machine, or they were busy. Any thread.

#include "common/clock.hpp"

namespace ddp::detail {

/// Notes a time without a look. What several threads note counts once.
void note_paused(ddprun::TimePoint began, ddprun::TimePoint ended);
/// Returns the sum of these times.
[[nodiscard]] ddprun::Duration paused_time();

}  // namespace ddp::detail
