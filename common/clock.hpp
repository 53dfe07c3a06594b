#pragma once
// The one clock of ddprun: monotonic, never compared between hosts.

#include <chrono>

namespace ddprun {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;
using Duration = Clock::duration;

}  // namespace ddprun
