#pragma once
// What all writers of the board need: whether they may, and the time as it stands there.

#include <atomic>
#include <chrono>
#include <cstdint>

#include "common/clock.hpp"

namespace ddp::detail {

/// A fork has the memory, too, but is not who the board is about.
inline std::atomic<bool> is_fork{false};

inline std::int64_t nanoseconds(ddprun::TimePoint time) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

inline std::int64_t now() { return nanoseconds(ddprun::Clock::now()); }

}  // namespace ddp::detail
