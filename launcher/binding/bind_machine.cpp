#include "launcher/binding/bind_machine.hpp"

#include <fmt/format.h>

#include <utility>

#include "launcher/binding/bind_workers.hpp"

namespace ddprun::launcher {
namespace {

/// Returns the topology of the CPUs that may be used.
Result<Topology> usable_topology(const Options& options) {
    auto topology = load_topology();
    if (!topology) return topology;
    const CpuSet allowed = allowed_cpu_set();
    if (topology->is_this_machine)
        topology = restricted_to(allowed, std::move(*topology));
    else if (!options.dry_run)
        return Error{Errc::kUsage, fmt::format("--numa-binding: {} describes another machine. Unset it, or add "
                                               "--dry-run to see the binding there.",
                                               description_variables())};
    if (!topology->numa_nodes.empty()) return topology;
    return Error{Errc::kSystem,
                 fmt::format("--numa-binding: hwloc shows none of the CPUs on which ddprun may run ({}). "
                             "Start the job without the option.",
                             number_list(allowed))};
}

}  // namespace

Result<MachineBinding> bind_machine(const Options& options, const std::vector<CpuSet>& near) {
    if (!options.numa_binding) return MachineBinding();
    auto topology = usable_topology(options);
    if (!topology) return topology.error();
    const int nodes = options.local_nodes ? options.nodes.max : 1;
    std::vector<CpuSet> all;
    for (int node = 0; node < nodes; ++node) {
        for (const CpuSet& cpus : near) all.push_back(topology->is_this_machine ? cpus : CpuSet());
    }
    auto workers = bind_workers(*options.numa_binding, *topology, all);
    if (!workers) return workers.error();
    return MachineBinding{std::move(*workers), std::move(*topology)};
}

}  // namespace ddprun::launcher
