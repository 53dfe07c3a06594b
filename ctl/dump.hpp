#pragma once
// Implements ddpctl dump: requests the flight records of a running job's workers from the job's daemon.

#include "ctl/options.hpp"

namespace ddprun::ctl {

/// Runs the command. Returns the exit code; prints errors to stderr.
[[nodiscard]] int run_dump(const DumpOptions& options);

}  // namespace ddprun::ctl
