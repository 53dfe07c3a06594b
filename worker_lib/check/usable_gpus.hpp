#pragma once
// Chooses the GPUs of a node that its ranks may use. NVML lists all GPUs of a machine, whatever CUDA_VISIBLE_DEVICES
// names, and those of other jobs are not this job's concern. Pure.

#include <string>
#include <vector>

#include "worker_lib/check/facts.hpp"

namespace ddp::check {

/// Keeps the GPUs that at least one rank of the node may use, and sets gpu_note if that changes the picture: if the
/// ranks may use none, or if a list has an entry that names no whole GPU, such as MIG-…. Then all GPUs are kept.
/// Sets unknown_gpu if a list has an entry that no GPU has.
/// lists  CUDA_VISIBLE_DEVICES of each rank of the node
void keep_usable_gpus(Node& node, const std::vector<VisibleGpus>& lists);

}  // namespace ddp::check
