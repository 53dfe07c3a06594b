#pragma once
// `ddprund --store HOST:PORT` as a function: a plain TCPStore server with signals, log and readiness around it.

#include "rendezvous/daemon/options.hpp"

namespace ddprun::daemon {

/// Serves until SIGTERM or SIGINT and returns the exit code. Needs options.store. Logging is set up.
[[nodiscard]] int run_store(const Options& options);

}  // namespace ddprun::daemon
