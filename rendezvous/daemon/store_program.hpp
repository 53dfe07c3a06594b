#pragma once
// Runs `ddprund --store HOST:PORT`: a plain TCPStore server with its signals, its log and its readiness reports.

#include <chrono>
#include <string>

#include "rendezvous/daemon/options.hpp"
#include "rendezvous/store/server/statistics.hpp"

namespace ddprun::daemon {

/// Serves until SIGTERM or SIGINT and returns the exit code. Preconditions: options.store and the log are set up.
[[nodiscard]] int run_store(const Options& options);

/// Returns "up 12 s; 3 connections (5 accepted, 1 refused); 4 keys and 0 waits in 1.2 KiB; 7
/// requests: SET 4, GET 3; 310 B in, 200 B out; 0 B buffered". Kinds of request without any are left out.
[[nodiscard]] std::string statistics_line(const store::Statistics& now, std::chrono::seconds up);

}  // namespace ddprun::daemon
