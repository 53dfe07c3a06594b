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

/// The job whose rendezvous daemon may run on this machine.
struct DaemonDemand {
    int nodes = 1;    ///< with which the job can start
    int workers = 1;  ///< of each node, as far as this one knows
};

/// Limits of this process, its user and its container; empty: unlimited, or not known.
struct ProcessLimits {
    std::optional<long> open_files;        ///< ulimit -n, of each process
    std::optional<long> max_open_files;    ///< ulimit -Hn: to which a process may raise it, as the daemon does
    std::optional<long> user_processes;    ///< ulimit -u; does not bind root
    std::optional<long> cgroup_processes;  ///< pids.max of the innermost control group
    std::optional<long> machine_pids;      ///< sysctl kernel.pid_max
};
[[nodiscard]] ProcessLimits process_limits();

/// Compares the demand with the limits. Errors: kLimit, naming the limit and what is needed.
[[nodiscard]] Result<void> check_limits(const Demand& demand, const ProcessLimits& limits);
/// Compares the open files that the daemon needs, for agents and the store of all workers, with the hard limit. Errors:
/// kLimit, naming the limit and what is needed.
[[nodiscard]] Result<void> check_daemon_limits(const DaemonDemand& demand, const ProcessLimits& limits);

}  // namespace ddprun::launcher
