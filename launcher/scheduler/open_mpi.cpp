#include "launcher/scheduler/open_mpi.hpp"

#include <fmt/format.h>

#include <string>

#include "common/fnv.hpp"
#include "launcher/scheduler/mpi_start.hpp"

namespace ddprun::launcher {
namespace {

/// Returns the name of this mpirun. Version 4 has a number that two mpirun may share, and the address of mpirun; that
/// of version 5 contains host and pid ("prterun-n1-1234@1").
Result<std::string> name_of_mpirun(const Variables& mpi) {
    const auto space = mpi.required("PMIX_NAMESPACE");
    if (!space) return space.error();
    const auto address = mpi.text("OMPI_MCA_orte_hnp_uri");
    if (!address && !space->starts_with("prte")) return mpi.required("OMPI_MCA_orte_hnp_uri").error();
    Fnv64 hash;
    hash.add(fmt::format("{} {}", *space, address.value_or("")));
    return fmt::format("mpirun-{:016x}", hash.value());
}

constexpr MpiStarter kOpenMpi{.program = "mpirun",
                              .sign = "OMPI_COMM_WORLD_SIZE",
                              .tasks = "OMPI_COMM_WORLD_SIZE",
                              .local_tasks = "OMPI_COMM_WORLD_LOCAL_SIZE",
                              .rank = "OMPI_COMM_WORLD_RANK",
                              .line = mpirun_line,
                              .name = name_of_mpirun};

}  // namespace

std::string mpirun_line(int nodes) {
    return fmt::format("mpirun -np {} --map-by ppr:1:node --bind-to none ddprun …", nodes);
}

Result<std::optional<Allocation>> find_open_mpi(const Environment& environment) {
    return find_mpi(kOpenMpi, environment);
}

std::optional<StepSize> open_mpi_step_size(const Environment& environment) {
    return mpi_step_size(kOpenMpi, environment);
}

}  // namespace ddprun::launcher
