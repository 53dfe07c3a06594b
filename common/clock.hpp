#pragma once
// The one clock of ddprun: monotonic, never compared between hosts.

#include <chrono>
#include <ctime>

namespace ddprun {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;
using Duration = Clock::duration;

/// Now or up to two ticks of the kernel (2 to 20 ms) later; a machine that stands still may make it earlier. For
/// deadlines that are set so often that Clock::now() would be a large part of the work: it takes a fifth of that.
[[nodiscard]] inline TimePoint roughly_now() {
    static const long tick = [] {
        timespec resolution{};
        ::clock_getres(CLOCK_MONOTONIC_COARSE, &resolution);
        return resolution.tv_nsec;
    }();
    timespec last{};  // the last tick
    ::clock_gettime(CLOCK_MONOTONIC_COARSE, &last);
    return TimePoint(std::chrono::seconds(last.tv_sec) + std::chrono::nanoseconds(last.tv_nsec + tick));
}

}  // namespace ddprun
