#pragma once
// ddprund as a function: the daemon with signals, log and the line for --ready-fd around it.

#include "rendezvous/daemon/options.hpp"

namespace ddprun::daemon {

/// Serves one job and returns the exit code. Logging is set up.
[[nodiscard]] int run_program(const Options& options);

}  // namespace ddprun::daemon
