#pragma once
// Topologies of machines that are not here, by hwloc's synthetic descriptions (HWLOC_SYNTHETIC in lstopo(1)).

#include <cstdlib>

#include "launcher/binding/topology.hpp"

inline ddprun::launcher::Topology synthetic(const char* description) {
    ::setenv("HWLOC_SYNTHETIC", description, 1);
    auto topology = ddprun::launcher::load_topology();
    ::unsetenv("HWLOC_SYNTHETIC");
    return topology.value();
}

/// Returns the CPUs first, first + 1, … last.
inline ddprun::CpuSet cpus(int first, int last) {
    ddprun::CpuSet set;
    for (int cpu = first; cpu <= last; ++cpu) set.insert(cpu);
    return set;
}
