#include "launcher/scheduler/open_mpi.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "common/fnv.hpp"
#include "common/job_limits.hpp"
#include "launcher/scheduler/several_tasks.hpp"
#include "launcher/scheduler/variables.hpp"

namespace ddprun::launcher {
namespace {

constexpr const char* kOpenMpiTasks = "OMPI_COMM_WORLD_SIZE";
constexpr const char* kOpenMpiLocalTasks = "OMPI_COMM_WORLD_LOCAL_SIZE";

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

}  // namespace

std::string mpirun_line(int nodes) {
    return fmt::format("mpirun -np {} --map-by ppr:1:node --bind-to none ddprun …", nodes);
}

Result<std::optional<Allocation>> find_open_mpi(const Environment& environment) {
    const Variables mpi(environment, kOpenMpiTasks);
    if (!mpi.found()) return std::optional<Allocation>();
    const auto tasks = mpi.number(kOpenMpiTasks, 1, kMaxTasks);
    const auto local_tasks = mpi.number(kOpenMpiLocalTasks, 1, kMaxSlots);
    if (!tasks || !local_tasks) return tasks ? local_tasks.error() : tasks.error();
    const int job_nodes = std::max(nodes_of_tasks(*tasks, *local_tasks), nodes_of_batch_job(environment));
    if (*local_tasks > 1) return several_tasks_error("mpirun", *local_tasks, mpirun_line(job_nodes));
    if (job_nodes == 1) return std::optional<Allocation>();
    const auto rank = mpi.number("OMPI_COMM_WORLD_RANK", 0, *tasks - 1);
    auto name = name_of_mpirun(mpi);
    if (!rank || !name) return rank ? name.error() : rank.error();
    Allocation allocation;
    allocation.name = std::move(*name);
    allocation.title = "this mpirun";
    allocation.nodes = *tasks;
    allocation.node = *rank;
    allocation.job_nodes = job_nodes;
    allocation.start_on_all = mpirun_line(job_nodes);
    return allocation;
}

std::optional<StepSize> open_mpi_step_size(const Environment& environment) {
    const Variables mpi(environment, kOpenMpiTasks);
    const auto tasks = mpi.number(kOpenMpiTasks, 1, kMaxTasks);
    const auto local_tasks = mpi.number(kOpenMpiLocalTasks, 1, kMaxSlots);
    if (!tasks || !local_tasks) return std::nullopt;
    return StepSize{"mpirun", *tasks, nodes_of_tasks(*tasks, *local_tasks)};
}

}  // namespace ddprun::launcher
