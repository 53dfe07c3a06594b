#pragma once
// StepTimes: how far the training of a worker, or of all workers of a node, has come, as it calls ddp::set_step().
// Pure.

#include <cstdint>
#include <optional>

#include "common/clock.hpp"

namespace ddprun {

/// Empty if the program does not call ddp::set_step().
struct StepTimes {
    std::optional<std::uint64_t> latest = {};  ///< the greatest step that was begun
    std::optional<TimePoint> first_at = {};    ///< when the first one was begun: whatever is restored was restored then
    std::optional<TimePoint> new_at = {};      ///< when the first one was begun that no earlier group had begun
};

/// Combines the times of two workers: a node has restored its state when the last of its workers has.
[[nodiscard]] StepTimes combined(const StepTimes& some, const StepTimes& more);

}  // namespace ddprun
