#pragma once
// Reads the variables and the node file of PBS and Torque. Their jobs start one program on their first host.

#include <optional>

#include "common/error.hpp"
#include "common/system/environment.hpp"
#include "launcher/scheduler/allocation.hpp"

namespace ddprun::launcher {

/// As find_allocation(), for PBS.
[[nodiscard]] Result<std::optional<Allocation>> find_pbs(const Environment& environment);

/// Returns the number of hosts of the job; 0: this process is not in a job of PBS, or its node file cannot be read
/// here.
[[nodiscard]] int pbs_job_nodes(const Environment& environment);

}  // namespace ddprun::launcher
