#pragma once
// Runs ddprund: the daemon with its signals, its log and the line for --ready-fd.

#include "rendezvous/daemon/options.hpp"

namespace ddprun::daemon {

/// Serves one job and returns the exit code. Precondition: logging is set up.
[[nodiscard]] int run_program(const Options& options);

}  // namespace ddprun::daemon
