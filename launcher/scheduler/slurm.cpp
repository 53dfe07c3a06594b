#include "launcher/scheduler/slurm.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/job_limits.hpp"
#include "common/text/number.hpp"
#include "launcher/scheduler/host_list.hpp"
#include "launcher/scheduler/pmi.hpp"
#include "launcher/scheduler/variables.hpp"

namespace ddprun::launcher {
namespace {

// Step ids from here on are of SLURM's own steps: the batch script, an interactive shell, the prolog.
constexpr std::uint32_t kFirstReservedStep = 0xffff'fff0;

// The year 2200: a clock of nanoseconds reaches as far as 2262.
constexpr std::int64_t kLatestTime = 7'258'118'400;

/// Returns the hosts of a list.
Result<std::vector<std::string>> slurm_hosts(const Variables& slurm, std::string_view name) {
    const auto value = slurm.required(name);
    if (!value) return value.error();
    auto hosts = expand_host_list(*value);
    if (hosts) return hosts;
    return start_error(fmt::format("{}: {}. {}", name, hosts.error().message, kNameTheNodes));
}

/// Returns the number of nodes of each component of the job, of which only a heterogeneous job has several.
Result<std::vector<int>> nodes_of_components(const Variables& slurm) {
    const auto here = slurm.number("SLURM_JOB_NUM_NODES", 0, kMaxNodes, 1);
    const auto components = slurm.number("SLURM_HET_SIZE", 0, kMaxNodes, 0);
    if (!here || !components) return here ? components.error() : here.error();
    std::vector<int> all;
    for (int component = 0; component < *components; ++component) {
        const auto nodes = slurm.number(fmt::format("SLURM_JOB_NUM_NODES_HET_GROUP_{}", component), 0, kMaxNodes, 0);
        if (!nodes) return nodes.error();
        all.push_back(*nodes);
    }
    const int sum = std::accumulate(all.begin(), all.end(), 0);
    return sum < *here ? std::vector<int>{*here} : all;
}

/// Returns the command that starts ddprun once on each node. --ntasks is named because the number in the job script
/// (SLURM_NTASKS) outweighs --ntasks-per-node; and each component needs a command of its own, because srun takes the
/// options of one for the size of each component.
std::string start_on_all(const std::vector<int>& nodes) {
    std::string line = "srun";
    for (std::size_t component = 0; component < nodes.size(); ++component) {
        if (component > 0) line += " :";
        if (nodes.size() > 1) line += fmt::format(" --het-group={}", component);
        line += fmt::format(" --nodes={0} --ntasks={0} ddprun …", nodes[component]);
    }
    return line;
}

/// Returns the greatest number of tasks on a node in "1(x3),2".
Result<int> max_tasks(std::string_view counts) {
    int max = 0;
    for (std::string_view rest = counts; !rest.empty();) {
        const std::string_view part = rest.substr(0, rest.find(','));
        const auto tasks = parse_number<int>(part.substr(0, part.find('(')));
        if (!tasks)
            return start_error(
                fmt::format("SLURM_STEP_TASKS_PER_NODE={}: not a list of counts. {}", counts, kNameTheNodes));
        max = std::max(max, *tasks);
        rest.remove_prefix(std::min(rest.size(), part.size() + 1));
    }
    return max;
}

/// Returns the number of the step; nullopt: this process is not in a step that srun has started.
std::optional<std::uint32_t> step_of(const Variables& slurm) {
    const auto text = slurm.text("SLURM_STEP_ID");
    const auto step = text ? parse_number<std::uint32_t>(*text) : std::nullopt;
    return step && *step < kFirstReservedStep ? step : std::nullopt;
}

/// Returns the number of GPUs, or CPUs, that `name` contains; nullopt: it is not set.
Result<std::optional<int>> count_of(const Variables& slurm, std::string_view name) {
    if (!slurm.text(name)) return std::optional<int>();
    const auto count = slurm.number(name, 0, kMaxSlots);
    return count ? Result<std::optional<int>>(*count) : count.error();
}

/// Adds the devices on this node. SLURM_CPUS_PER_TASK may be that of the job script, of whose tasks ddprun is none.
Result<void> add_devices(const Variables& slurm, Allocation& allocation) {
    const auto gpus = count_of(slurm, "SLURM_GPUS_ON_NODE");
    const auto cpus = count_of(slurm, "SLURM_CPUS_ON_NODE");
    if (!gpus) return gpus.error();
    if (!cpus) return cpus.error();
    allocation.gpus = *gpus;
    allocation.cpus = *cpus;
    return {};
}

/// Returns the allocation of a process outside the steps: of the batch script, or of the shell of salloc.
Result<std::optional<Allocation>> outside_steps(const Variables& slurm, Allocation allocation, const std::string& job) {
    if (allocation.job_nodes > 1) {
        return start_error(
            fmt::format("ddprun was started once, but SLURM job {} has {} nodes, and each of them needs its own "
                        "ddprun. Start it with {}; or pass --standalone to use one node alone.",
                        job, allocation.job_nodes, allocation.start_on_all));
    }
    auto hosts = slurm_hosts(slurm, "SLURM_JOB_NODELIST");
    if (!hosts) return hosts.error();
    if (!slurm.text("SLURMD_NODENAME")) {
        return start_error(
            fmt::format("this shell is not on {}, the node of SLURM job {}. Start ddprun there with {}; or pass "
                        "--standalone to use this host.",
                        hosts->front(), job, allocation.start_on_all));
    }
    allocation.name = fmt::format("slurm-{}", job);
    allocation.title = fmt::format("SLURM job {}", job);
    allocation.hosts = std::move(*hosts);
    allocation.nodes = static_cast<int>(allocation.hosts.size());
    if (const Result<void> added = add_devices(slurm, allocation); !added) return added.error();
    return allocation;
}

Result<std::optional<Allocation>> in_step(const Variables& slurm, Allocation allocation, const std::string& job,
                                          std::uint32_t step) {
    const auto counts = slurm.required("SLURM_STEP_TASKS_PER_NODE");
    const auto tasks = counts ? max_tasks(*counts) : counts.error();
    if (!tasks) return tasks.error();
    if (*tasks > 1) {
        return start_error(fmt::format(
            "srun has started {} tasks on a node, but ddprun is started once per node and starts the workers "
            "itself. Start it with {}, with --nproc-per-node {} for as many workers.",
            *tasks, allocation.start_on_all, *tasks));
    }
    auto hosts = slurm_hosts(slurm, "SLURM_STEP_NODELIST");
    if (!hosts) return hosts.error();
    const int last = static_cast<int>(hosts->size()) - 1;
    const auto node = slurm.number("SLURM_NODEID", 0, last);
    if (!node) return node.error();
    const auto nodes = slurm.number("SLURM_STEP_NUM_NODES", 0, kMaxNodes);
    if (!nodes) return nodes.error();
    if (*nodes != last + 1) {
        return start_error(fmt::format("SLURM_STEP_NODELIST has {}, but SLURM_STEP_NUM_NODES is {}. {}",
                                       counted(last + 1, "host"), *nodes, kNameTheNodes));
    }
    allocation.name = fmt::format("slurm-{}.{}", job, step);
    allocation.title = fmt::format("step {} of SLURM job {}", step, job);
    allocation.hosts = std::move(*hosts);
    allocation.nodes = static_cast<int>(allocation.hosts.size());
    allocation.node = *node;
    if (const Result<void> added = add_devices(slurm, allocation); !added) return added.error();
    return allocation;
}

}  // namespace

Result<std::optional<Allocation>> find_slurm(const Environment& environment) {
    const Variables slurm(environment, "SLURM_JOB_ID");
    const auto job = slurm.text("SLURM_JOB_ID");
    if (!job) return std::optional<Allocation>();
    if (!parse_number<std::uint32_t>(*job))
        return start_error(fmt::format("SLURM_JOB_ID={}: not the number of a job. {}", *job, kNameTheNodes));
    const auto nodes = nodes_of_components(slurm);
    if (!nodes) return nodes.error();
    const auto attempt = slurm.number("SLURM_RESTART_COUNT", 0, 1'000'000, 0);
    if (!attempt) return attempt.error();
    Allocation allocation;
    allocation.job_nodes = std::accumulate(nodes->begin(), nodes->end(), 0);
    allocation.start_on_all = start_on_all(*nodes);
    const auto step = step_of(slurm);
    if (!step) {  // SLURM sets PMI in steps only, so here it is another starter's
        const auto by_pmi = find_pmi(environment);
        if (!by_pmi) return by_pmi.error();
    }
    auto found = step ? in_step(slurm, std::move(allocation), std::string(*job), *step)
                      : outside_steps(slurm, std::move(allocation), std::string(*job));
    if (found && *attempt > 0) (*found)->name += fmt::format("-r{}", *attempt);
    return found;
}

Result<std::optional<std::chrono::system_clock::time_point>> slurm_job_end(const Environment& environment) {
    using std::chrono::system_clock;
    const auto text = Variables(environment, "SLURM_JOB_ID").text("SLURM_JOB_END_TIME");
    if (!text) return std::optional<system_clock::time_point>();
    const auto seconds = parse_number<std::int64_t>(*text);
    if (seconds && *seconds >= 0 && *seconds <= kLatestTime)
        return std::optional(system_clock::time_point(std::chrono::seconds(*seconds)));
    return start_error(fmt::format(
        "SLURM_JOB_END_TIME={}: not a time in seconds since 1970. Unset it if the job has no time limit.", *text));
}

int slurm_job_nodes(const Environment& environment) {
    const Variables slurm(environment, "SLURM_JOB_ID");
    const auto nodes = slurm.found() ? nodes_of_components(slurm) : std::vector<int>();
    return nodes ? std::accumulate(nodes->begin(), nodes->end(), 0) : 0;
}

std::optional<StepSize> slurm_step_size(const Environment& environment) {
    const Variables slurm(environment, "SLURM_JOB_ID");
    const auto tasks = slurm.number("SLURM_STEP_NUM_TASKS", 0, kMaxNodes * kMaxSlots);
    const auto nodes = slurm.number("SLURM_STEP_NUM_NODES", 0, kMaxNodes);
    if (!slurm.text("SLURM_JOB_ID") || !step_of(slurm) || !tasks || !nodes) return std::nullopt;
    return StepSize{"srun", *tasks, *nodes};
}

}  // namespace ddprun::launcher
