#pragma once
// The pattern that ranks send, and the results that have to arrive: small whole numbers, whose sums are exact in every
// type.

#include <cstddef>

#include "worker_lib/bench/collective.hpp"

namespace ddp::bench {

/// Fills the input of `call.rank`.
void fill_input(const Call& call, const Buffer& in);

/// Returns how many elements of the output are wrong. Checks every one. An average may differ by the rounding of
/// `backend`: the native one rounds once, NCCL each rank's share and each sum.
[[nodiscard]] std::size_t count_wrong(const Call& call, const Buffer& out, Backend backend = Backend::Native);

}  // namespace ddp::bench
