#pragma once
// Clock: the monotonic clock of ddprun. Times of different hosts are never compared.

#include <chrono>
#include <ctime>

namespace ddprun {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;
using Duration = Clock::duration;

/// Returns the time of the kernel's last clock tick. It is at most one tick (1 to 10 ms) before Clock::now(), more on a
/// machine that was paused. Use it where times are taken so often that the cost of Clock::now() matters.
[[nodiscard]] inline TimePoint last_tick() {
    timespec last{};
    ::clock_gettime(CLOCK_MONOTONIC_COARSE, &last);
    return TimePoint(std::chrono::seconds(last.tv_sec) + std::chrono::nanoseconds(last.tv_nsec));
}

/// Returns the time from one tick to the next.
[[nodiscard]] inline Duration tick_length() {
    static const long tick = [] {
        timespec resolution{};
        ::clock_getres(CLOCK_MONOTONIC_COARSE, &resolution);
        return resolution.tv_nsec;
    }();
    return std::chrono::nanoseconds(tick);
}

}  // namespace ddprun
