#pragma once
// Reads the variables of SLURM, as srun and sbatch set them (man srun, "OUTPUT ENVIRONMENT VARIABLES"). Pure.

#include <chrono>
#include <optional>

#include "common/error.hpp"
#include "common/system/environment.hpp"
#include "launcher/scheduler/allocation.hpp"

namespace ddprun::launcher {

/// As find_allocation(), for SLURM.
[[nodiscard]] Result<std::optional<Allocation>> find_slurm(const Environment& environment);

/// As job_end(), for SLURM.
[[nodiscard]] Result<std::optional<std::chrono::system_clock::time_point>> slurm_job_end(
    const Environment& environment);

/// Returns the number of nodes of the job; 0: this process is not in a job of SLURM, or its variables are malformed.
[[nodiscard]] int slurm_job_nodes(const Environment& environment);

/// As step_size(), for SLURM.
[[nodiscard]] std::optional<StepSize> slurm_step_size(const Environment& environment);

}  // namespace ddprun::launcher
