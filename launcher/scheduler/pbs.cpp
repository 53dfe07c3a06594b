#include "launcher/scheduler/pbs.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "common/job_limits.hpp"
#include "launcher/scheduler/started_once.hpp"
#include "launcher/scheduler/variables.hpp"

namespace ddprun::launcher {
namespace {

constexpr const char* kPbsJob = "PBS_JOBID";
constexpr const char* kPbsFile = "PBS_NODEFILE";
constexpr std::size_t kMaxPbsLines = static_cast<std::size_t>(kMaxNodes) * kMaxSlots;

/// Returns the lines of the node file: a host for each slot of the job. Only the first host has the file.
Result<std::vector<std::string>> pbs_slots(const Variables& pbs) {
    const auto path = pbs.required(kPbsFile);
    if (!path) return path.error();
    std::ifstream file{std::string(*path)};
    std::vector<std::string> slots;
    for (std::string line; slots.size() < kMaxPbsLines && std::getline(file, line);)
        if (!line.empty()) slots.push_back(line);
    if (!slots.empty()) return slots;
    return start_error(fmt::format(
        "{}={}: names no host, or cannot be read on this one, so the hosts of PBS job {} are unknown. Start "
        "ddprun in the job script, on the first host of the job. {}",
        kPbsFile, *path, *pbs.text(kPbsJob), kNameTheNodes));
}

}  // namespace

Result<std::optional<Allocation>> find_pbs(const Environment& environment) {
    const Variables pbs(environment, kPbsJob);
    if (!pbs.found()) return std::optional<Allocation>();
    const auto slots = pbs_slots(pbs);
    if (!slots) return slots.error();
    const std::string job(*pbs.text(kPbsJob));
    auto allocation = allocation_started_once("pbs-" + job, "PBS job " + job, distinct(*slots), kPbsFile);
    if (!allocation) return allocation.error();
    const auto task = pbs.number("PBS_TASKNUM", 0, 1'000'000'000, 1);  // the job script is the first task
    if (!task) return task.error();
    if (*task > 1 && slots->size() > 1) {
        return start_error(fmt::format(
            "pbsdsh has started ddprun, perhaps once per slot, but ddprun is started once per host and "
            "starts the workers itself. Start it in the job script without pbsdsh, with --nproc-per-node {} "
            "for as many workers as the job has slots.",
            slots->size()));
    }
    return std::move(*allocation);
}

int pbs_job_nodes(const Environment& environment) {
    const Variables pbs(environment, kPbsJob);
    const auto slots = pbs.found() ? pbs_slots(pbs) : std::vector<std::string>();
    return slots ? static_cast<int>(distinct(*slots).size()) : 0;
}

}  // namespace ddprun::launcher
