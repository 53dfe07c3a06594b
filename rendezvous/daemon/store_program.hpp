#pragma once
// Runs `ddprund --store HOST:PORT`: a plain TCPStore server with its signals, its log and its readiness reports.

#include "rendezvous/daemon/options.hpp"

namespace ddprun::daemon {

/// Serves until SIGTERM or SIGINT and returns the exit code. Preconditions: options.store and the log are set up.
[[nodiscard]] int run_store(const Options& options);

}  // namespace ddprun::daemon
