#pragma once
// Turns --nproc-per-node into a number of workers on this machine. Called by launch().

#include <filesystem>

#include "common/error.hpp"
#include "launcher/options/options.hpp"

namespace ddprun::launcher {

/// The devices that this process may use.
struct Machine {
    int cpus = 1;  ///< those that this process may run on
    int gpus = 0;  ///< those that it may use
};

/// Counts CPUs by the affinity mask, and GPUs by the device files in `devices`. If there is one and
/// CUDA_VISIBLE_DEVICES is set, counts its entries instead.
[[nodiscard]] Machine this_machine(const Environment& environment, const std::filesystem::path& devices = "/dev");

/// Returns the number of workers. Errors: Errc::kUsage for "gpu" on a machine without one.
[[nodiscard]] Result<int> worker_count(const Slots& slots, const Machine& machine);

/// Checks that --virtual-local-rank finds a GPU for each of the `slots` workers in CUDA_VISIBLE_DEVICES, if that is
/// set. Errors: Errc::kUsage.
[[nodiscard]] Result<void> check_gpus(const Options& options, int slots, const Environment& environment);

}  // namespace ddprun::launcher
