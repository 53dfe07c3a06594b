#pragma once
// ddpctl dump: asks the daemon of a running job for the boards of its workers.

#include "ctl/options.hpp"

namespace ddprun::ctl {

/// Returns the exit code; says on stderr what went wrong.
[[nodiscard]] int run_dump(const DumpOptions& options);

}  // namespace ddprun::ctl
