#pragma once
// Reads the variables of LSF. Its jobs start one program on their first host. Pure.

#include <optional>

#include "common/error.hpp"
#include "common/system/environment.hpp"
#include "launcher/scheduler/allocation.hpp"

namespace ddprun::launcher {

/// As find_allocation(), for LSF.
[[nodiscard]] Result<std::optional<Allocation>> find_lsf(const Environment& environment);

/// Returns the number of hosts of the job; 0: this process is not in a job of LSF, or its variables do not say.
[[nodiscard]] int lsf_job_nodes(const Environment& environment);

}  // namespace ddprun::launcher
