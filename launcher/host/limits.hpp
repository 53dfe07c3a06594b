#pragma once
// Checks whether this machine's limits allow as many workers as were requested, before any is started. Called by
// launch(). The check is no guarantee: if a limit is reached all the same, the agent reports it and stops its workers.

#include <optional>

#include "common/error.hpp"

namespace ddprun::launcher {

/// The workers that a job is to start on this machine.
struct Demand {
    int workers = 1;    ///< of one node
    int nodes = 1;      ///< on this machine
    int log_files = 0;  ///< of one worker
};

/// Limits of this process, its user and its container; empty: unlimited, or not known.
struct ProcessLimits {
    std::optional<long> open_files;        ///< ulimit -n, of each process
    std::optional<long> user_processes;    ///< ulimit -u; does not bind root
    std::optional<long> cgroup_processes;  ///< pids.max of the innermost control group
    std::optional<long> machine_pids;      ///< sysctl kernel.pid_max
};
[[nodiscard]] ProcessLimits process_limits();

/// Compares the demand with the limits. Errors: kLimit, naming the limit and what is needed.
[[nodiscard]] Result<void> check_limits(const Demand& demand, const ProcessLimits& limits);

}  // namespace ddprun::launcher
