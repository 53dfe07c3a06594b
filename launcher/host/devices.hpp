#pragma once
// Counts the accelerators of this machine by the files of the kernel, without a library of their makers. Called by
// this_machine().

#include <filesystem>

#include "common/system/process.hpp"

namespace ddprun::launcher {

/// The accelerators that this process may use.
struct Devices {
    int nvidia = 0;
    int amd = 0;
    int intel = 0;
};

/// Counts NVIDIA's devices by /dev/nvidia<number>, AMD's by the nodes of /sys/class/kfd if /dev/kfd can be opened, and
/// Intel's by the render nodes of the drivers xe and i915. `root` is the folder of dev and sys. The lists of visible
/// devices in `environment` narrow the counts: CUDA_VISIBLE_DEVICES; ROCR_VISIBLE_DEVICES, and HIP_VISIBLE_DEVICES or
/// else CUDA_VISIBLE_DEVICES; ZE_AFFINITY_MASK.
[[nodiscard]] Devices count_devices(const Environment& environment, const std::filesystem::path& root);

}  // namespace ddprun::launcher
