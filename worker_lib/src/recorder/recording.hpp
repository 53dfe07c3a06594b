#pragma once
// Shared by all writers of the flight record: whether they may write, and the time in its format.

#include <atomic>
#include <chrono>
#include <cstdint>

#include "common/clock.hpp"

namespace ddp::detail {

/// True in a child of fork(), which shares the memory although the flight record is its parent's.
inline std::atomic<bool> is_fork{false};

inline std::int64_t nanoseconds(ddprun::TimePoint time) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

inline std::int64_t now() { return nanoseconds(ddprun::Clock::now()); }

}  // namespace ddp::detail
