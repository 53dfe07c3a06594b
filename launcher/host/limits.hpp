#pragma once
// Whether this machine lets one ddprun have as many workers as it was asked for: looked at before any is started. A
// look is no promise: what runs out all the same is said by the agent, which stops what it has started.

#include <optional>

#include "common/error.hpp"

namespace ddprun::launcher {

struct Demand {
    int workers = 1;         ///< of one node
    int nodes = 1;           ///< on this machine
    bool log_files = false;  ///< two more files per worker
};

/// What this process, and all of this user or container, may have; empty: as much as it wants, or not known.
struct ProcessLimits {
    std::optional<long> open_files;        ///< ulimit -n, of each process
    std::optional<long> user_processes;    ///< ulimit -u; does not bind root
    std::optional<long> cgroup_processes;  ///< pids.max of the innermost control group
    std::optional<long> machine_pids;      ///< sysctl kernel.pid_max
};
[[nodiscard]] ProcessLimits process_limits();

/// Errors: kLimit, naming the limit and what is needed.
[[nodiscard]] Result<void> check_limits(const Demand& demand, const ProcessLimits& limits);

}  // namespace ddprun::launcher
