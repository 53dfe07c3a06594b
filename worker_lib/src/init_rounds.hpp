#pragma once
// In which round the ranks of a world meet. What they tell each other then is read in that round only (group_key()), so
// nobody takes what a rank said in an attempt that has failed for what it says now.
//
// A rank that makes a Context comes to the first round about which nothing is decided. It is met when all have come,
// and have then said that they are still there: one that has come may have been ended since. Who gives up closes the
// round, and the others go on to the next, where they are found by who tries again.

#include <cstdint>

#include "worker_lib/src/backend.hpp"

namespace ddp::detail {

/// Collective over the ranks of the world: the number of the round in which all have met, from 1. `world.init` plays no
/// part. Waits world.init_timeout at most: throws Error{Timeout} naming those who never came; Error{Environment} if
/// another process keeps coming as the same rank.
[[nodiscard]] std::int64_t meet_in_round(const GroupSpec& world);

}  // namespace ddp::detail
