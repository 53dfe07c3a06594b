#pragma once
// The GPU and the CPUs of each worker on this machine, by --gpus and --numa-binding. Called by launch(), from
// the main thread while there is no other one: see bind_machine().

#include <string>
#include <vector>

#include "agent/config/worker_binding.hpp"
#include "common/error.hpp"
#include "launcher/binding/topology.hpp"
#include "launcher/host/gpus.hpp"
#include "launcher/options/options.hpp"

namespace ddprun::launcher {

struct WorkerResources {
    std::vector<std::string> gpus;               ///< by local rank; empty: none is known, or none was asked for
    std::vector<agent::WorkerBinding> bindings;  ///< as of bind_machine()
    bool is_this_machine = true;                 ///< false: a dry run on a machine that is described to hwloc
    std::string remark = {};                     ///< about the bindings, for the user; empty: there is none
};

/// Returns the reason and the remedy, if workers are not bound to the CPUs near their GPUs; else an empty text. Pure.
/// topology  of the CPUs that may be used.
[[nodiscard]] std::string far_workers_text(const WorkerGpus& gpus, const Topology& topology);

/// Returns the GPUs and bindings of the `slots` workers of a node, and of those of the other emulated nodes. Asks
/// neither drivers nor hwloc if no option needs them. Warns of workers that are not bound near their GPUs; the remark
/// of a dry run says the same. Errors: those of gpus_of_workers() and bind_machine(); Errc::kUsage is the user's.
[[nodiscard]] Result<WorkerResources> assign_resources(const Options& options, int slots,
                                                       const Environment& environment);

/// Returns the bindings of the workers of this node, which may be one of several emulated ones; empty: they are not
/// bound.
[[nodiscard]] std::vector<agent::WorkerBinding> bindings_of_node(const Options& options, int slots,
                                                                 const WorkerResources& resources);

}  // namespace ddprun::launcher
