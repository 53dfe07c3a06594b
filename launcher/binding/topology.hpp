#pragma once
// Topology: the parts of a machine that matter for binding workers, as sets of CPUs. A plain value, which hwloc fills
// in for load_topology(); called by bind_machine(), from the main thread while there is no other one.

#include <string>
#include <vector>

#include "common/error.hpp"
#include "common/system/cpu_set.hpp"

namespace ddprun::launcher {

/// The CPUs of a machine, by what they share. Every CPU is in one NUMA node, one package and one core.
struct Topology {
    struct NumaNode {
        int index = 0;  ///< the number that the kernel and numactl(8) use
        CpuSet cpus;
    };
    std::vector<NumaNode> numa_nodes;    ///< those that have CPUs of their own
    std::vector<CpuSet> packages;        ///< sockets
    std::vector<CpuSet> core_complexes;  ///< CPUs that share their last cache; empty: caches are not known
    std::vector<CpuSet> cores;           ///< CPUs that share a core (SMT), neighbours first
    bool is_this_machine = true;         ///< false: description_variables() describes another one
};

/// Asks hwloc for the topology of this machine, without its I/O devices and plug-ins, or that of another machine if
/// HWLOC_XMLFILE or HWLOC_SYNTHETIC names one. Errors: hwloc cannot read it; Errc::kUsage, it ignores such a variable.
[[nodiscard]] Result<Topology> load_topology();

/// Returns the variables that are set and make hwloc show another machine, as "HWLOC_XMLFILE=node.xml".
[[nodiscard]] std::string description_variables();

/// Returns `topology` with only the CPUs of `allowed`, and without the parts that have none of them.
[[nodiscard]] Topology restricted_to(const CpuSet& allowed, Topology topology);

}  // namespace ddprun::launcher
