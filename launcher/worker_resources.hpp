#pragma once
// The GPU and the CPUs of each worker on this machine, by --gpus and --numa-binding. Called by launch(), from
// the main thread while there is no other one: see bind_machine().

#include <string>
#include <vector>

#include "agent/config/worker_binding.hpp"
#include "common/error.hpp"
#include "launcher/options/options.hpp"

namespace ddprun::launcher {

struct WorkerResources {
    std::vector<std::string> gpus;               ///< by local rank; empty: none is known, or none was asked for
    std::vector<agent::WorkerBinding> bindings;  ///< as of bind_machine()
};

/// Returns the GPUs and bindings of the `slots` workers of a node, and of those of the other emulated nodes. Asks
/// neither drivers nor hwloc if no option needs them. Errors: those of gpus_of_workers() and bind_machine();
/// Errc::kUsage is the user's.
[[nodiscard]] Result<WorkerResources> assign_resources(const Options& options, int slots,
                                                       const Environment& environment);

/// Returns the bindings of the workers of this node, which may be one of several emulated ones; empty: they are not
/// bound.
[[nodiscard]] std::vector<agent::WorkerBinding> bindings_of_node(const Options& options, int slots,
                                                                 const WorkerResources& resources);

}  // namespace ddprun::launcher
