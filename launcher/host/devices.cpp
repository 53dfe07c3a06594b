#include "launcher/host/devices.hpp"

#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace fs = std::filesystem;

namespace ddprun::launcher {
namespace {

/// Counts the entries of `folder` that `counts` accepts; a folder that does not exist has none.
template <typename Predicate>
int count_entries(const fs::path& folder, Predicate counts) {
    int count = 0;
    std::error_code ec;
    for (fs::directory_iterator it(folder, ec), end; !ec && it != end; it.increment(ec))
        count += counts(it->path()) ? 1 : 0;
    return count;
}

bool is_numbered(std::string_view name, std::string_view prefix) {
    return name.starts_with(prefix) && name.size() > prefix.size() &&
           name.find_first_not_of("0123456789", prefix.size()) == std::string_view::npos;
}

bool is_nvidia_device(const fs::path& path) { return is_numbered(path.filename().string(), "nvidia"); }

/// Returns whether the KFD node is a GPU: the nodes of CPUs have no SIMD units. The properties of a GPU that a control
/// group denies to this process cannot be read.
bool is_amd_gpu(const fs::path& node) {
    std::ifstream file(node / "properties");
    std::string name;
    for (unsigned long long value = 0; file >> name >> value;)
        if (name == "simd_count") return value > 0;
    return false;
}

int listed_devices(std::string_view list) { return static_cast<int>(entries_in(list).size()); }

}  // namespace

const std::string* list_in(const Environment& environment, std::string_view name) {
    const auto it = environment.find(name);
    return it == environment.end() ? nullptr : &it->second;
}

std::vector<std::string> entries_in(std::string_view list) {
    std::vector<std::string> entries;
    while (!list.empty()) {
        const std::string_view entry = list.substr(0, list.find(','));
        if (entry.empty() || entry.starts_with('-')) break;
        entries.emplace_back(entry);
        list.remove_prefix(std::min(list.size(), entry.size() + 1));
    }
    return entries;
}

bool is_intel_gpu(const fs::path& render_node) {
    if (!is_numbered(render_node.filename().string(), "renderD")) return false;
    std::ifstream file(render_node / "device/vendor");
    std::string vendor;
    if (!(file >> vendor) || vendor != "0x8086") return false;
    std::error_code ignored;  // a device without a driver cannot be used
    const std::string driver = fs::read_symlink(render_node / "device/driver", ignored).filename().string();
    return driver == "xe" || driver == "i915";
}

Devices count_devices(const Environment& environment, const fs::path& root) {
    Devices devices;
    const std::string* const cuda = list_in(environment, kCudaDevices);
    devices.nvidia = count_entries(root / "dev", is_nvidia_device);
    // Entries may outnumber the devices: each can be a slice (MIG) of one. Without a device the variable means nothing.
    if (cuda != nullptr && devices.nvidia > 0) devices.nvidia = listed_devices(*cuda);

    if (::access((root / "dev/kfd").c_str(), R_OK | W_OK) == 0)
        devices.amd = count_entries(root / "sys/class/kfd/kfd/topology/nodes", is_amd_gpu);
    const std::string* const hip = list_in(environment, kHipDevices);
    for (const std::string* list : {list_in(environment, kRocrDevices), hip != nullptr ? hip : cuda})
        if (list != nullptr) devices.amd = std::min(devices.amd, listed_devices(*list));

    devices.intel = count_entries(root / "sys/class/drm", is_intel_gpu);
    const std::string* const mask = list_in(environment, kLevelZeroDevices);
    // Entries may name tiles (0.1), and an empty mask hides nothing.
    if (mask != nullptr && !mask->empty() && devices.intel > 0) devices.intel = listed_devices(*mask);
    return devices;
}

}  // namespace ddprun::launcher
