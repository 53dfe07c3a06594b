#pragma once
// The hand-over of a worker group's secret (docs/design/029): the agent passes each worker a descriptor of sealed
// memory, and ddp::ddp reads it once. Both sides use these names.

#include <fcntl.h>

#include "common/mac.hpp"

namespace ddprun::worker_secret {

/// The secret of one generation of one job.
using Secret = Mac;

/// Names the environment variable that holds the number of the inherited descriptor.
inline constexpr const char* kDescriptorVariable = "DDPRUN_SECRET_FD";
/// The value of that variable in a job without a secret. Without the variable a wrapper has removed it.
inline constexpr const char* kNoSecret = "none";

/// The seals of the memory, whose whole contents are the secret. By them a worker recognises the descriptor.
inline constexpr int kSeals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

}  // namespace ddprun::worker_secret
