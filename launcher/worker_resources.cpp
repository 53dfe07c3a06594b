#include "launcher/worker_resources.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <cstddef>
#include <set>
#include <utility>

#include "common/text/list.hpp"
#include "launcher/binding/bind_machine.hpp"

namespace ddprun::launcher {
namespace {

void log_bindings(const std::vector<agent::WorkerBinding>& bindings, const std::vector<std::string>& gpus) {
    for (std::size_t local = 0; local < bindings.size(); ++local) {
        spdlog::debug("local rank {}: bound to CPUs {} of NUMA node {}{}", local,
                      number_list(cpus_in(bindings[local].cpus)), number_list(bindings[local].numa_nodes),
                      gpus.empty() ? "" : fmt::format(", for GPU {}", gpus[local]));
    }
}

/// Returns "GPU 3 (local rank 1)".
std::string gpus_with_ranks(const std::set<int>& locals, const std::vector<std::string>& names) {
    std::vector<std::string> gpus;
    for (const int local : locals) gpus.push_back(names[static_cast<std::size_t>(local)]);
    return fmt::format("GPU{0} {1} (local rank{0} {2})", locals.size() == 1 ? "" : "s", list_of(gpus),
                       number_list(locals));
}

}  // namespace

std::string far_workers_text(const WorkerGpus& gpus, const Topology& topology) {
    CpuSet usable;
    for (const auto& node : topology.numa_nodes) usable.insert(node.cpus.begin(), node.cpus.end());
    std::set<int> unknown;  // local ranks
    std::set<int> far;
    for (std::size_t local = 0; local < gpus.names.size(); ++local) {
        if (gpus.near[local].empty() && topology.numa_nodes.size() > 1) unknown.insert(static_cast<int>(local));
        if (!gpus.near[local].empty() && common_cpus(gpus.near[local], usable).empty())
            far.insert(static_cast<int>(local));
    }
    std::vector<std::string> sentences;
    if (!unknown.empty()) {
        sentences.push_back(
            fmt::format("--numa-binding: the location of {} is not known, so any NUMA node may be chosen. {}",
                        gpus_with_ranks(unknown, gpus.names), gpus.remedy));
    }
    if (!far.empty()) {
        sentences.push_back(fmt::format(
            "--numa-binding: ddprun may not run on any CPU near {}, only on {}. Allow CPUs near it (taskset, the "
            "scheduler's options), or choose other GPUs (--gpus).",
            gpus_with_ranks(far, gpus.names), number_list(usable)));
    }
    return fmt::format("{}", fmt::join(sentences, "\n"));
}

Result<WorkerResources> assign_resources(const Options& options, int slots, const Environment& environment) {
    if (!options.gpus && !options.numa_binding && !options.dry_run) return WorkerResources();
    auto gpus = gpus_of_workers(options, slots, environment);
    if (!gpus) return gpus.error();
    auto bound = bind_machine(options, gpus->near);
    if (!bound) return bound.error();
    if (!bound->topology.is_this_machine) {
        return WorkerResources{{},
                               std::move(bound->workers),
                               false,
                               fmt::format("CPUs and NUMA nodes are those of the machine that {} describes; its name "
                                           "and its GPUs are not known.",
                                           description_variables())};
    }
    std::string remark = options.numa_binding ? far_workers_text(*gpus, bound->topology) : "";
    if (!remark.empty() && !options.dry_run && !options.as_local_node) spdlog::warn("{}", remark);
    WorkerResources resources{std::move(gpus->names), std::move(bound->workers), true, std::move(remark)};
    if (spdlog::should_log(spdlog::level::debug))
        log_bindings(bindings_of_node(options, slots, resources), resources.gpus);
    return resources;
}

std::vector<agent::WorkerBinding> bindings_of_node(const Options& options, int slots,
                                                   const WorkerResources& resources) {
    if (resources.bindings.empty()) return {};
    const auto first = resources.bindings.begin() + (options.as_local_node ? options.as_local_node->index * slots : 0);
    return {first, first + slots};
}

}  // namespace ddprun::launcher
