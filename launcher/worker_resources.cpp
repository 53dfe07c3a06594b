#include "launcher/worker_resources.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <cstddef>
#include <utility>

#include "launcher/binding/bind_machine.hpp"
#include "launcher/host/gpus.hpp"

namespace ddprun::launcher {
namespace {

void log_bindings(const std::vector<agent::WorkerBinding>& bindings, const std::vector<std::string>& gpus) {
    for (std::size_t local = 0; local < bindings.size(); ++local) {
        spdlog::debug("local rank {}: bound to CPUs {} of NUMA node {}{}", local,
                      number_list(cpus_in(bindings[local].cpus)), number_list(bindings[local].numa_nodes),
                      gpus.empty() ? "" : fmt::format(", for GPU {}", gpus[local]));
    }
}

}  // namespace

Result<WorkerResources> assign_resources(const Options& options, int slots, const Environment& environment) {
    if (!options.gpus && !options.numa_binding && !options.dry_run) return WorkerResources();
    auto gpus = gpus_of_workers(options, slots, environment);
    if (!gpus) return gpus.error();
    auto bindings = bind_machine(options, gpus->near);
    if (!bindings) return bindings.error();
    WorkerResources resources{std::move(gpus->names), std::move(*bindings)};
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
