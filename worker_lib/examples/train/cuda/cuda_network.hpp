#pragma once
// The Network on a CUDA device.

#include <cstddef>
#include <memory>

#include "network.hpp"

namespace train {

/// Makes the model on the device of this rank. Throws UserError if there is no CUDA driver or no cuBLAS.
/// arena      of a group on NCCL: it has memory of that device
/// max_rows   the size of the largest batch
[[nodiscard]] std::unique_ptr<Network> make_cuda_network(const Options& options, ddp::Arena& arena, int local_rank,
                                                         std::size_t max_rows);

}  // namespace train
