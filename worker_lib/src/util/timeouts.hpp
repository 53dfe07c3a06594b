#pragma once
// Timeouts as users give them, and the deadlines made of them. Pure, except for the clock.

#include <algorithm>
#include <chrono>

#include "common/clock.hpp"

namespace ddp::detail {

/// The longest timeout, longer than any training; later deadlines would be too close to the clock's own end.
inline constexpr std::chrono::milliseconds kForever = std::chrono::hours(10 * 365 * 24);

/// Returns `timeout` for arithmetic: milliseconds::max() overflows when it is added to a time or becomes nanoseconds.
[[nodiscard]] constexpr ddprun::Duration bounded(std::chrono::milliseconds timeout) {
    return std::min(timeout, kForever);
}

/// Returns the time that is `timeout` from now.
[[nodiscard]] inline ddprun::TimePoint deadline_in(std::chrono::milliseconds timeout) {
    return ddprun::Clock::now() + bounded(timeout);
}

}  // namespace ddp::detail
