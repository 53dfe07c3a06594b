#pragma once
// Reads the variables of Hydra, the mpiexec of MPICH and Intel MPI, and asks it for the name of the job.

#include <optional>

#include "common/error.hpp"
#include "common/system/environment.hpp"
#include "launcher/scheduler/allocation.hpp"

namespace ddprun::launcher {

/// As find_allocation(), for Hydra; nullopt also for one process in a job of one node. Blocks for a few seconds at
/// most.
[[nodiscard]] Result<std::optional<Allocation>> find_mpich(const Environment& environment);

/// As step_size(), for Hydra.
[[nodiscard]] std::optional<StepSize> mpich_step_size(const Environment& environment);

}  // namespace ddprun::launcher
