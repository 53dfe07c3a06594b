#pragma once
// How a thread that carries data tells the kernel so: it works for a moment, then waits for others.

#include <chrono>

namespace ddp::detail {

/// The shortest that the kernel grants.
inline constexpr std::chrono::microseconds kShortTurn{100};

/// Asks the kernel to let this thread run soon after it could, in return for short turns: where ranks share cores with
/// threads that compute, a peer would otherwise wait for whole time slices of theirs, a few ms each, before this one
/// adds up its part. Its share of the core stays what it is. Needs no privilege; kernels before Linux 6.12 ignore it.
void take_short_turns();

}  // namespace ddp::detail
