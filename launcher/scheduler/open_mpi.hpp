#pragma once
// Reads the variables of Open MPI's mpirun, versions 4 and 5, and of starters that imitate it. Pure but for
// nodes_of_batch_job().

#include <optional>
#include <string>

#include "common/error.hpp"
#include "common/system/environment.hpp"
#include "launcher/scheduler/allocation.hpp"

namespace ddprun::launcher {

/// As find_allocation(), for Open MPI; nullopt also for one process in a job of one node.
[[nodiscard]] Result<std::optional<Allocation>> find_open_mpi(const Environment& environment);

/// Returns the line that starts ddprun once on each of `nodes` nodes. mpirun binds each process to a core unless it is
/// forbidden, and the workers would share it.
[[nodiscard]] std::string mpirun_line(int nodes);

/// As step_size(), for Open MPI.
[[nodiscard]] std::optional<StepSize> open_mpi_step_size(const Environment& environment);

}  // namespace ddprun::launcher
