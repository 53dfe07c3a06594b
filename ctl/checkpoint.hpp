#pragma once
// The command `ddpctl checkpoint`: lists the tensors of a checkpoint file and verifies its checksums. It needs no job.

#include "common/checkpoint/stored.hpp"
#include "ctl/options.hpp"

namespace ddprun::ctl {

/// Returns the facts of the file and a table of its tensors. Control characters are escaped. Pure but for the file's
/// header, which has been read.
[[nodiscard]] std::string checkpoint_text(const checkpoint::StoredCheckpoint& file);

/// Prints the file's tensors and whether it is whole, and returns the exit code.
[[nodiscard]] int run_checkpoint(const CheckpointOptions& options);

}  // namespace ddprun::ctl
