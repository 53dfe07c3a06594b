#include "launcher/scheduler/mpi_start.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/job_limits.hpp"
#include "launcher/scheduler/several_tasks.hpp"

namespace ddprun::launcher {

Result<std::optional<Allocation>> find_mpi(const MpiStarter& starter, const Environment& environment) {
    const Variables mpi(environment, starter.sign);
    if (!mpi.found()) return std::optional<Allocation>();
    const auto tasks = mpi.number(starter.tasks, 1, kMaxTasks);
    const auto local_tasks = mpi.number(starter.local_tasks, 1, kMaxSlots);
    if (!tasks || !local_tasks) return tasks ? local_tasks.error() : tasks.error();
    const int job_nodes = std::max(nodes_of_tasks(*tasks, *local_tasks), nodes_of_batch_job(environment));
    if (*local_tasks > 1) return several_tasks_error(starter.program, *local_tasks, starter.line(job_nodes));
    if (job_nodes == 1) return std::optional<Allocation>();
    const auto rank = mpi.number(starter.rank, 0, *tasks - 1);
    auto name = starter.name(mpi);
    if (!rank || !name) return rank ? name.error() : rank.error();
    Allocation allocation;
    allocation.name = std::move(*name);
    allocation.title = fmt::format("this {}", starter.program);
    allocation.nodes = *tasks;
    allocation.node = *rank;
    allocation.job_nodes = job_nodes;
    allocation.start_on_all = starter.line(job_nodes);
    return allocation;
}

std::optional<StepSize> mpi_step_size(const MpiStarter& starter, const Environment& environment) {
    const Variables mpi(environment, starter.sign);
    const auto tasks = mpi.number(starter.tasks, 1, kMaxTasks);
    const auto local_tasks = mpi.number(starter.local_tasks, 1, kMaxSlots);
    if (!tasks || !local_tasks) return std::nullopt;
    return StepSize{starter.program, *tasks, nodes_of_tasks(*tasks, *local_tasks)};
}

}  // namespace ddprun::launcher
