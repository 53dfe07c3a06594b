#pragma once
// Short time slices: a thread that moves data asks the kernel to be scheduled soon, because it works for a moment and
// then waits for peers. If ranks share cores, more communication is then hidden behind computation
// (docs/benchmarks/decisions.md#short-time-slices).

#include <chrono>

namespace ddp::detail {

/// The shortest time slice that the kernel grants.
inline constexpr std::chrono::microseconds kShortTimeSlice{100};

/// Asks the kernel to let the calling thread run soon after it becomes ready, in return for short time slices.
/// Otherwise a peer would wait for whole time slices of threads that compute before this thread adds up its part. The
/// thread's share of the core stays the same. Needs no privilege; kernels before Linux 6.12 ignore it.
void request_short_time_slices();

}  // namespace ddp::detail
