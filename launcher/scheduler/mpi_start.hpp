#pragma once
// What the starters of MPI have in common: each process knows its rank and how many there are, in all and on its node,
// but not the hosts. Private to the starters.

#include <optional>
#include <string>

#include "common/error.hpp"
#include "common/system/environment.hpp"
#include "launcher/scheduler/allocation.hpp"
#include "launcher/scheduler/variables.hpp"

namespace ddprun::launcher {

struct MpiStarter {
    const char* program;                                ///< "mpirun"
    const char* sign;                                   ///< the variable that shows that it has started this process
    const char* tasks;                                  ///< the variables with the number of processes in all,
    const char* local_tasks;                            ///< on this node,
    const char* rank;                                   ///< and of this process
    std::string (*line)(int nodes);                     ///< starts ddprun once on each of `nodes` nodes
    Result<std::string> (*name)(const Variables& mpi);  ///< of this start: no other one has it
};

/// As find_allocation(); nullopt also for one process in a job of one node.
[[nodiscard]] Result<std::optional<Allocation>> find_mpi(const MpiStarter& starter, const Environment& environment);
/// As step_size().
[[nodiscard]] std::optional<StepSize> mpi_step_size(const MpiStarter& starter, const Environment& environment);

}  // namespace ddprun::launcher
