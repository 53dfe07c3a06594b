#include "launcher/scheduler/flux.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "common/job_limits.hpp"
#include "launcher/scheduler/several_tasks.hpp"
#include "launcher/scheduler/variables.hpp"

namespace ddprun::launcher {
namespace {

constexpr const char* kFluxJob = "FLUX_JOB_ID";

/// Without --exclusive each task would get one core.
template <typename Count>
std::string flux_line(const Count& nodes) {
    return fmt::format("flux run --nodes={0} --ntasks={0} --exclusive ddprun …", nodes);
}

/// Returns the name of the job: "/ƒD2e73NP/ƒDCB6RV" is "flux-fD2e73NP-fDCB6RV". A number alone is that of a job in one
/// of the instances of Flux, which jobs start inside each other.
std::string name_of_flux_job(const Variables& flux) {
    const std::string outer(flux.text("FLUX_ENCLOSING_ID").value_or(""));
    std::string path = fmt::format("{}/{}", outer.empty() ? "" : "/" + outer, *flux.text(kFluxJob));
    if (const auto full = flux.text("FLUX_JOB_ID_PATH")) path = *full;
    constexpr std::string_view kSign = "ƒ";
    std::string name = "flux";
    for (std::string_view rest = path; !rest.empty();) {
        const bool is_sign = rest.starts_with(kSign);
        name += is_sign ? 'f' : rest.front() == '/' ? '-' : rest.front();
        rest.remove_prefix(is_sign ? kSign.size() : 1);
    }
    return name;
}

}  // namespace

Result<std::optional<Allocation>> find_flux(const Environment& environment) {
    const Variables flux(environment, kFluxJob);
    if (!flux.found()) {
        if (!flux.text("FLUX_URI")) return std::optional<Allocation>();
        return start_error(fmt::format(
            "FLUX_URI is set, but FLUX_JOB_ID is not: ddprun was started by a script or shell of Flux, whose "
            "number of nodes is in no variable. Start it with {}; or pass --standalone to use this node "
            "alone.",
            flux_line("N")));
    }
    const auto tasks = flux.number("FLUX_JOB_SIZE", 1, kMaxTasks);
    const auto nodes = flux.number("FLUX_JOB_NNODES", 1, kMaxNodes);
    if (!tasks || !nodes) return tasks ? nodes.error() : tasks.error();
    const int job_nodes = std::max(*nodes, nodes_of_batch_job(environment));
    if (*tasks > *nodes) return several_tasks_error("flux", nodes_of_tasks(*tasks, *nodes), flux_line(job_nodes));
    const auto rank = flux.number("FLUX_TASK_RANK", 0, *tasks - 1);
    if (!rank) return rank.error();
    Allocation allocation;
    allocation.name = name_of_flux_job(flux);
    allocation.title = fmt::format("Flux job {}", *flux.text(kFluxJob));
    allocation.nodes = *nodes;
    allocation.node = *rank;
    allocation.job_nodes = job_nodes;
    allocation.start_on_all = flux_line(job_nodes);
    return allocation;
}

std::optional<StepSize> flux_step_size(const Environment& environment) {
    const Variables flux(environment, kFluxJob);
    const auto tasks = flux.number("FLUX_JOB_SIZE", 1, kMaxTasks);
    const auto nodes = flux.number("FLUX_JOB_NNODES", 1, kMaxNodes);
    if (!flux.found() || !tasks || !nodes) return std::nullopt;
    return StepSize{"flux", *tasks, *nodes};
}

}  // namespace ddprun::launcher
