#include "launcher/host/devices.hpp"

#include "launcher/host/gpu_inventory.hpp"

namespace ddprun::launcher {

Devices count_devices(const Environment& environment, const std::filesystem::path& root) {
    const auto count = [&](GpuVendor vendor) {
        return static_cast<int>(visible_gpus(gpu_inventory(vendor, environment, root), environment).size());
    };
    return {count(GpuVendor::kNvidia), count(GpuVendor::kAmd), count(GpuVendor::kIntel)};
}

}  // namespace ddprun::launcher
