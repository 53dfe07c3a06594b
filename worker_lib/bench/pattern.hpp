#pragma once
// What ranks send, and what has to arrive: small whole numbers, of which every type holds the sums exactly.

#include <cstddef>

#include "worker_lib/bench/collective.hpp"

namespace ddp::bench {

/// Fills the input of `call.rank`.
void fill_input(const Call& call, const Buffer& in);

/// How many elements of the output are not what the collective has to give. Looks at every one. An average may differ
/// by what `backend` rounds: the native one once, NCCL each rank's share and each sum.
[[nodiscard]] std::size_t count_wrong(const Call& call, const Buffer& out, Backend backend = Backend::Native);

}  // namespace ddp::bench
