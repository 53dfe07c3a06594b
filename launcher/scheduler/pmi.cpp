#include "launcher/scheduler/pmi.hpp"

#include <fmt/format.h>

#include "launcher/scheduler/several_tasks.hpp"
#include "launcher/scheduler/variables.hpp"

namespace ddprun::launcher {
namespace {

constexpr const char* kPmiTasks = "PMI_SIZE";

}  // namespace

Result<std::optional<Allocation>> find_pmi(const Environment& environment) {
    const Variables pmi(environment, kPmiTasks);
    const auto tasks = pmi.number(kPmiTasks, 1, kMaxTasks, 1);
    if (!tasks) return tasks.error();
    if (*tasks > 1) {
        return start_error(fmt::format(
            "PMI_SIZE={}: ddprun was started {} times at once by a starter that names neither the nodes nor "
            "how many there are. Start it once per node. {}",
            *tasks, *tasks, kNameTheNodes));
    }
    const bool is_counted = pmi.found() || pmi.text("OMPI_COMM_WORLD_SIZE");  // as one process
    if (is_counted || !pmi.text("PMIX_RANK")) return std::optional<Allocation>();
    return start_error(
        fmt::format("PMIX_RANK is set: ddprun was started by a starter that names neither the nodes nor how many there "
                    "are. Start it once per node. {}",
                    kNameTheNodes));
}

std::optional<StepSize> pmi_step_size(const Environment& environment) {
    const Variables pmi(environment, kPmiTasks);
    const auto tasks = pmi.number(kPmiTasks, 1, kMaxTasks);
    if (!tasks) return std::nullopt;
    return StepSize{"a starter of MPI programs", *tasks, *tasks};
}

}  // namespace ddprun::launcher
