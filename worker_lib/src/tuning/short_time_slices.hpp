#pragma once
// Short time slices: how a thread that carries data asks the kernel to be scheduled soon, because it works for a moment
// and then waits for peers. Where ranks share cores this halves the communication that is not hidden behind computation
// (docs/benchmarks/decisions.md#short-time-slices).

#include <chrono>

namespace ddp::detail {

/// The shortest time slice that the kernel grants.
inline constexpr std::chrono::microseconds kShortTimeSlice{100};

/// Asks the kernel to let the calling thread run soon after it becomes ready, in return for short time slices.
/// Otherwise a peer would wait for whole time slices of threads that compute, a few ms each, before this thread adds up
/// its part. The thread's share of the core stays the same. Needs no privilege; kernels before Linux 6.12 ignore it.
void request_short_time_slices();

}  // namespace ddp::detail
