#pragma once
// Rules by which a running job grows (--scale-up). Private to the coordinator.

#include <chrono>
#include <optional>

#include "rendezvous/coordinator/transition.hpp"

namespace ddprun::coordinator {

/// A group that runs for this time ends the row of restarts to grow: their pauses are short again.
inline constexpr std::chrono::hours kSettled{1};

/// Returns the largest number of nodes that the next group may have.
[[nodiscard]] int max_size(const State& state);
/// Returns when the running group is to be restarted with nodes that wait; nullopt: it is not.
[[nodiscard]] std::optional<TimePoint> growth_due(const State& state);
/// Returns for how long the running group is not restarted to grow.
[[nodiscard]] Duration growth_pause(const State& state);
/// Returns whether as many nodes may wait as the running group has room for: then it may be due at once.
[[nodiscard]] bool takes_last_place(const State& state);
/// Restarts the running group when that is due.
void grow(Transition& t);

}  // namespace ddprun::coordinator
