#pragma once
// The GPUs of this machine one by one: UUID, and the CPUs near them, from the files of their drivers; and the choice of
// --gpus. Called by launch() with --gpus, --numa-binding or --dry-run alone.

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/error.hpp"
#include "common/system/cpu_set.hpp"
#include "launcher/options/options.hpp"

namespace ddprun::launcher {

/// Whose GPUs the workers of this machine use.
enum class GpuMaker { kNvidia, kAmd, kIntel };

/// One GPU.
struct Gpu {
    std::string uuid;  ///< "GPU-8a1f…"; empty: not known
    CpuSet near;       ///< the CPUs of its NUMA node; empty: not known
};

/// Returns the GPUs that this process may open, in the order in which the maker's library numbers them: NVIDIA's and
/// Intel's by PCI address (NVIDIA's: if they are of one model, or CUDA_DEVICE_ORDER=PCI_BUS_ID), AMD's by KFD node.
/// Empty if the driver does not list them. `root` is the folder of dev, proc and sys.
[[nodiscard]] std::vector<Gpu> list_gpus(GpuMaker maker, const std::filesystem::path& root);

/// A list of visible devices that this process was started with.
struct InheritedList {
    std::string variable;
    std::string list;
};

/// Returns the list of visible devices for --gpus: `wanted`, or all GPUs if it is empty. Pure.
/// count      of the GPUs that there are, at least 1.
/// gpus       as of list_gpus(); fewer than `count` if the driver does not list them.
/// inherited  limits the choice; absent: all may be chosen.
/// Errors: Errc::kUsage, a GPU that does not exist, is hidden or occurs twice.
[[nodiscard]] Result<std::string> choose_gpus(const std::vector<std::string>& wanted, int count,
                                              const std::vector<Gpu>& gpus,
                                              const std::optional<InheritedList>& inherited);

/// Applies --gpus, if it is given: sets the variable of visible devices in `environment`, from which the number of
/// workers follows, and in the environment of this process, which workers inherit. If the GPUs are Intel's, a number of
/// workers that is to follow counts them. Errors: those of choose_gpus(); there is no GPU.
[[nodiscard]] Result<void> apply_gpus(Options& options, Environment& environment,
                                      const std::filesystem::path& root = "/");

/// The GPUs of this node's workers, by local rank; all empty if there are fewer than workers.
struct WorkerGpus {
    std::vector<std::string> names;  ///< as in the list of visible devices
    std::vector<CpuSet> near;        ///< of each worker; empty: not known
};
/// Returns the GPU of each worker: that of its local rank among the visible ones, as scripts choose it. Errors:
/// Errc::kUsage, --gpus names fewer than workers.
[[nodiscard]] Result<WorkerGpus> gpus_of_workers(const Options& options, int workers, const Environment& environment,
                                                 const std::filesystem::path& root = "/");

}  // namespace ddprun::launcher
