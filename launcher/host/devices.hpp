#pragma once
// Counts the accelerators of this machine by the files of the kernel, without a library of their makers. Called by
// this_machine().

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "common/system/process.hpp"

namespace ddprun::launcher {

// The lists of visible devices, by which a process limits the devices of the libraries that it loads.
inline constexpr std::string_view kCudaDevices = "CUDA_VISIBLE_DEVICES";
inline constexpr std::string_view kHipDevices = "HIP_VISIBLE_DEVICES";    // AMD's, whose libraries read CUDA's else
inline constexpr std::string_view kRocrDevices = "ROCR_VISIBLE_DEVICES";  // AMD's, below the other two
inline constexpr std::string_view kLevelZeroDevices = "ZE_AFFINITY_MASK";

/// Returns the value of a variable; null: it is not set.
[[nodiscard]] const std::string* list_in(const Environment& environment, std::string_view name);

/// Returns the entries of a list of visible devices, up to the first invalid one, at which CUDA stops: "-1" hides all.
[[nodiscard]] std::vector<std::string> entries_in(std::string_view list);

/// Returns whether the entry of /sys/class/drm is the render node of an Intel GPU that has a driver.
[[nodiscard]] bool is_intel_gpu(const std::filesystem::path& render_node);

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
