#pragma once
// What all writers of the flight record need: whether they may write, and the time as it is recorded.

#include <atomic>
#include <chrono>
#include <cstdint>

#include "common/clock.hpp"

namespace ddp::detail {

/// A fork shares the memory, but the flight record is about its parent.
inline std::atomic<bool> is_fork{false};

inline std::int64_t nanoseconds(ddprun::TimePoint time) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

inline std::int64_t now() { return nanoseconds(ddprun::Clock::now()); }

}  // namespace ddp::detail
