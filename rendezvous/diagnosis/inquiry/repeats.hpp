#pragma once
// How often a verdict is repeated: the same stall is reported once, another one of the same ranks after a pause. Pure;
// shared by the rules in stalls.cpp, failures.cpp and last_ranks.cpp.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>

namespace ddprun::diagnosis {

/// A verdict on the same ranks is not repeated for this time, then for twice as long each time, up to kMaxRepeatPause.
inline constexpr std::chrono::minutes kRepeatPause{1};
inline constexpr std::chrono::minutes kMaxRepeatPause{60};
/// The number of verdicts that are remembered of each kind: a job with many stalls must not fill the daemon's memory.
inline constexpr std::size_t kMaxReported = 1'000;

/// Returns the pause after a report. `previous` is the pause after the one before it; empty: it is the first.
[[nodiscard]] inline std::chrono::nanoseconds next_pause(std::optional<std::chrono::nanoseconds> previous) {
    return previous ? std::min<std::chrono::nanoseconds>(*previous * 2, kMaxRepeatPause) : kRepeatPause;
}

}  // namespace ddprun::diagnosis
