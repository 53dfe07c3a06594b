#pragma once
// ddpctl dump: asks the daemon of a running job for the flight records of its workers.

#include "ctl/options.hpp"

namespace ddprun::ctl {

/// Runs the command. Returns the exit code; prints errors to stderr.
[[nodiscard]] int run_dump(const DumpOptions& options);

}  // namespace ddprun::ctl
