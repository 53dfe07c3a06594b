#pragma once
// The GPUs of this machine one by one, from the files of their drivers, without a library of their vendors. Pure
// functions on that list find the GPU that an entry of a list of visible devices names.

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/system/cpu_set.hpp"
#include "common/system/process.hpp"

namespace ddprun::launcher {

// The lists of visible devices, by which a process limits the devices of the libraries that it loads.
inline constexpr std::string_view kCudaDevices = "CUDA_VISIBLE_DEVICES";
inline constexpr std::string_view kHipDevices = "HIP_VISIBLE_DEVICES";    // AMD's, whose libraries read CUDA's else
inline constexpr std::string_view kRocrDevices = "ROCR_VISIBLE_DEVICES";  // AMD's, below the other two
inline constexpr std::string_view kLevelZeroDevices = "ZE_AFFINITY_MASK";

enum class GpuVendor { kNvidia, kAmd, kIntel };

/// One GPU.
struct Gpu {
    std::string uuid;   ///< "GPU-8a1f…"; empty: not known
    CpuSet near;        ///< the CPUs of its NUMA node; empty: not known
    std::string model;  ///< as NVIDIA's driver names it; empty: not known
};

/// Returns the GPUs that this process may open: NVIDIA's and Intel's by PCI address, AMD's by KFD node. If NVIDIA's
/// driver describes none, the device files are counted. `root` is the folder of dev, proc and sys.
[[nodiscard]] std::vector<Gpu> list_gpus(GpuVendor vendor, const std::filesystem::path& root);

/// The GPUs of one vendor that a list of visible devices may name.
struct GpuInventory {
    GpuVendor vendor = GpuVendor::kNvidia;
    std::vector<Gpu> gpus;
    bool listed_by_number = true;  ///< false: the vendor's library numbers them in another order than `gpus`
};

/// Returns the GPUs of this machine, which for AMD's ROCR_VISIBLE_DEVICES limits. CUDA numbers GPUs of several models
/// by speed, unless CUDA_DEVICE_ORDER is PCI_BUS_ID; Intel's numbers may be those of tiles, unless
/// ZE_FLAT_DEVICE_HIERARCHY is COMPOSITE.
[[nodiscard]] GpuInventory gpu_inventory(GpuVendor vendor, const Environment& environment,
                                         const std::filesystem::path& root);

/// Returns the GPU that an entry of a list of visible devices names; null: it is not known which.
[[nodiscard]] const Gpu* find_gpu(const std::string& entry, const GpuInventory& inventory);

/// Returns whether an entry of a list of visible devices may name a GPU. The UUIDs of slices (MIG) are not listed.
[[nodiscard]] bool may_exist(const std::string& entry, const GpuInventory& inventory);

/// A list of visible devices in a variable of the environment.
struct VisibleList {
    std::string variable;
    std::string list;
};

/// Returns the variable in which the vendor's library finds the list of visible devices.
[[nodiscard]] std::string visible_variable(GpuVendor vendor, const Environment& environment);

/// Returns the list that hides GPUs of that vendor; nullopt: none is set, or Intel's is empty, which hides nothing.
[[nodiscard]] std::optional<VisibleList> visible_list(GpuVendor vendor, const Environment& environment);

/// Returns the entries of a list of visible devices without blanks, up to the first that is empty or begins with "-",
/// at which CUDA stops: "-1" hides all.
[[nodiscard]] std::vector<std::string> entries_in(std::string_view list);

/// Returns the entries by which this process names its GPUs: those of the list of visible devices up to the first that
/// names no GPU, at which the libraries stop, or without a list the numbers of all GPUs.
[[nodiscard]] std::vector<std::string> visible_gpus(const GpuInventory& inventory, const Environment& environment);

}  // namespace ddprun::launcher
