#pragma once
// How many workers --nproc-per-node means on this machine.

#include <filesystem>

#include "common/error.hpp"
#include "launcher/options.hpp"

namespace ddprun::launcher {

struct Machine {
    int cpus = 1;   ///< that this process may run on
    int gpus = 0;   ///< that it may use
};

/// CPUs by the affinity mask, GPUs by the device files in `devices`, narrowed by CUDA_VISIBLE_DEVICES.
[[nodiscard]] Machine this_machine(const Environment& environment, const std::filesystem::path& devices = "/dev");

/// Errors: Errc::kUsage for "gpu" where there is none.
[[nodiscard]] Result<int> worker_count(const Slots& slots, const Machine& machine);

/// Whether --virtual-local-rank finds a GPU for each of the `slots` workers, as far as CUDA_VISIBLE_DEVICES tells.
[[nodiscard]] Result<void> check_gpus(const Options& options, int slots, const Environment& environment);

}  // namespace ddprun::launcher
