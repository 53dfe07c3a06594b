#pragma once
// Turns --nproc-per-node into a number of workers on this machine, and --virtual-local-rank into the variables that
// show each of them one device. Called by launch().

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "common/error.hpp"
#include "launcher/options/options.hpp"

namespace ddprun::launcher {

/// The devices that this process may use.
struct Machine {
    int cpus = 1;               ///< those that this process may run on
    int gpus = 0;               ///< NVIDIA's, or AMD's where there is none of NVIDIA's
    int xpus = 0;               ///< Intel's GPUs
    bool gpus_are_amd = false;  ///< `gpus` counts AMD's
};

/// Counts CPUs by the affinity mask, and GPUs as count_devices() does below `root`.
[[nodiscard]] Machine this_machine(const Environment& environment, const std::filesystem::path& root = "/");

/// Returns the number of workers; "auto" counts GPUs, but not Intel's, which most PyTorch builds cannot use. Errors:
/// Errc::kUsage for "gpu" or "xpu" on a machine without one.
[[nodiscard]] Result<int> worker_count(const Slots& slots, const Machine& machine);

/// Returns the error of `option` on a machine without a GPU: the places that were searched, and the remedy.
[[nodiscard]] Error no_gpu(std::string_view option, std::string_view remedy);

/// Returns the variables in which --virtual-local-rank names one device for each worker: CUDA_VISIBLE_DEVICES;
/// HIP_VISIBLE_DEVICES if it is set or the GPUs are AMD's; ZE_AFFINITY_MASK if it is set. Empty without that option.
[[nodiscard]] std::vector<std::string> device_variables(const Options& options, const Machine& machine,
                                                        const Environment& environment);

/// Checks that each of `variables` that is set names a device for each of the `slots` workers. Errors: Errc::kUsage.
[[nodiscard]] Result<void> check_visible_devices(const std::vector<std::string>& variables, int slots,
                                                 const Environment& environment);

}  // namespace ddprun::launcher
