#pragma once
// The one clock of ddprun: monotonic, never compared between hosts.

#include <chrono>
#include <ctime>

namespace ddprun {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;
using Duration = Clock::duration;

/// When the kernel's clock ticked last: now or a tick (1 to 10 ms) earlier; a machine that stands still may make it
/// more. For times that are taken so often that Clock::now() would be a large part of the work: it takes a fifth of
/// that.
[[nodiscard]] inline TimePoint last_tick() {
    timespec last{};
    ::clock_gettime(CLOCK_MONOTONIC_COARSE, &last);
    return TimePoint(std::chrono::seconds(last.tv_sec) + std::chrono::nanoseconds(last.tv_nsec));
}

/// From one tick to the next.
[[nodiscard]] inline Duration tick_length() {
    static const long tick = [] {
        timespec resolution{};
        ::clock_getres(CLOCK_MONOTONIC_COARSE, &resolution);
        return resolution.tv_nsec;
    }();
    return std::chrono::nanoseconds(tick);
}

}  // namespace ddprun
