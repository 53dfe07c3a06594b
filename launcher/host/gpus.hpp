#pragma once
// The choice of --gpus, and the GPU of each worker. Called by launch(), only with --gpus, --numa-binding or --dry-run.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/error.hpp"
#include "common/system/cpu_set.hpp"
#include "launcher/host/gpu_inventory.hpp"
#include "launcher/options/options.hpp"

namespace ddprun::launcher {

/// Returns the list of visible devices for --gpus: `wanted`, or all GPUs if it is empty. Pure.
/// inventory  at least one GPU.
/// inherited  limits the choice; absent: all may be chosen.
/// Errors: Errc::kUsage, a GPU that does not exist, is hidden or occurs twice, or an inherited list that names one.
[[nodiscard]] Result<std::string> choose_gpus(const std::vector<std::string>& wanted, const GpuInventory& inventory,
                                              const std::optional<VisibleList>& inherited);

/// Applies --gpus, if it is given: sets the variable of visible devices in `environment`, from which the number of
/// workers follows, and in the environment of this process, which workers inherit. If the GPUs are Intel's, a number of
/// workers that is to follow counts them. Errors: those of choose_gpus(); there is no GPU.
[[nodiscard]] Result<void> apply_gpus(Options& options, Environment& environment,
                                      const std::filesystem::path& root = "/");

/// The GPUs of this node's workers, by local rank; all empty if there are fewer than workers.
struct WorkerGpus {
    std::vector<std::string> names;  ///< as in the list of visible devices
    std::vector<CpuSet> near;        ///< of each worker; empty: not known
    std::string remedy;              ///< makes unknown locations known
};
/// Returns the GPU of each worker: that of its local rank among the visible ones, as scripts choose it. Errors:
/// Errc::kUsage, --gpus names fewer than workers.
[[nodiscard]] Result<WorkerGpus> gpus_of_workers(const Options& options, int workers, const Environment& environment,
                                                 const std::filesystem::path& root = "/");

}  // namespace ddprun::launcher
