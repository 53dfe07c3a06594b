#include "launcher/binding/bind_machine.hpp"

#include <utility>

#include "launcher/binding/bind_workers.hpp"
#include "launcher/binding/topology.hpp"

namespace ddprun::launcher {
namespace {

/// Returns the topology of the CPUs that may be used.
Result<Topology> usable_topology(const Options& options) {
    auto topology = load_topology();
    if (!topology) return topology;
    if (topology->is_this_machine)
        topology = restricted_to(allowed_cpu_set(), std::move(*topology));
    else if (!options.dry_run)
        return Error{
            Errc::kUsage,
            "--numa-binding: HWLOC_XMLFILE or HWLOC_SYNTHETIC names another machine. Unset it, or add --dry-run "
            "to see the binding there."};
    if (!topology->numa_nodes.empty()) return topology;
    return Error{Errc::kSystem,
                 "--numa-binding: hwloc shows no CPU of those on which ddprun may run (`taskset -p $$`). Start the job "
                 "without the option."};
}

}  // namespace

Result<std::vector<agent::WorkerBinding>> bind_machine(const Options& options, const std::vector<CpuSet>& near) {
    if (!options.numa_binding) return std::vector<agent::WorkerBinding>();
    const auto topology = usable_topology(options);
    if (!topology) return topology.error();
    const int nodes = options.local_nodes ? options.nodes.max : 1;
    std::vector<CpuSet> all;
    for (int node = 0; node < nodes; ++node) {
        for (const CpuSet& cpus : near) all.push_back(topology->is_this_machine ? cpus : CpuSet());
    }
    return bind_workers(*options.numa_binding, *topology, all);
}

}  // namespace ddprun::launcher
