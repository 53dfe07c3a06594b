#pragma once
// Applies --numa-binding on this machine: topology, affinity mask and the decision of bind_workers(). Called by
// launch(), from the main thread while there is no other one, because hwloc reads the environment.

#include <vector>

#include "agent/config/worker_binding.hpp"
#include "common/error.hpp"
#include "launcher/options/options.hpp"

namespace ddprun::launcher {

/// Returns the bindings of all workers that the job has on this machine, by emulated node, if there are several, and
/// local rank; empty without --numa-binding.
/// near  of each local rank the CPUs near its GPU; empty: it has none, or its location is not known.
/// CPUs outside the affinity mask of this process are not used. Errors: Errc::kUsage, from bind_workers(), or another
/// machine's topology for a job that is to start here; those of load_topology().
[[nodiscard]] Result<std::vector<agent::WorkerBinding>> bind_machine(const Options& options,
                                                                     const std::vector<CpuSet>& near);

}  // namespace ddprun::launcher
