#pragma once
// Decides which CPUs each worker of a machine gets (--numa-binding). Pure: the topology is a value, and so is the
// location of each worker's GPU. docs/design/021 has the rules and their reasons.

#include <vector>

#include "agent/config/worker_binding.hpp"
#include "common/error.hpp"
#include "launcher/binding/topology.hpp"
#include "launcher/options/option_values.hpp"

namespace ddprun::launcher {

/// Returns the binding of each worker.
/// topology  has only the CPUs that may be used, and at least one NUMA node.
/// near      has an entry for each worker: the CPUs near its GPU; empty: it has none, or its location is not known.
/// A worker whose GPU is near several NUMA nodes, all or none of them is spread over these in the order of the workers,
/// in proportion to their cores, and avoids nodes that other workers fill. Errors: Errc::kUsage, a NUMA node has fewer
/// cores than workers that each need one.
[[nodiscard]] Result<std::vector<agent::WorkerBinding>> bind_workers(NumaBinding binding, const Topology& topology,
                                                                     const std::vector<CpuSet>& near);

}  // namespace ddprun::launcher
