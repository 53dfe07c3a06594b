#pragma once
// Applies --numa-binding on this machine: topology, affinity mask and the decision of bind_workers(). Called by
// launch(), from the main thread while there is no other one, because hwloc reads the environment.

#include <vector>

#include "agent/config/worker_binding.hpp"
#include "common/error.hpp"
#include "launcher/binding/topology.hpp"
#include "launcher/options/options.hpp"

namespace ddprun::launcher {

/// The workers of a machine, and the machine that they were bound on.
struct MachineBinding {
    /// Of all workers that the job has on this machine, by emulated node, if there are several, and local rank; empty
    /// without --numa-binding.
    std::vector<agent::WorkerBinding> workers;
    Topology topology;  ///< of the CPUs that may be used; empty without --numa-binding
};

/// Binds the workers of this machine.
/// near  has an entry for each local rank: the CPUs near its GPU; empty: it has none, or its location is not known.
/// CPUs outside the affinity mask of this process are not used. Errors: Errc::kUsage, from bind_workers(), or another
/// machine's topology for a job that is to start here; those of load_topology().
[[nodiscard]] Result<MachineBinding> bind_machine(const Options& options, const std::vector<CpuSet>& near);

}  // namespace ddprun::launcher
