#include "launcher/host/gpu_inventory.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <utility>

#include "common/system/files.hpp"
#include "common/text/number.hpp"

namespace fs = std::filesystem;

namespace ddprun::launcher {
namespace {

const std::string* value_of(const Environment& environment, std::string_view name) {
    const auto it = environment.find(name);
    return it == environment.end() ? nullptr : &it->second;
}

bool is(const Environment& environment, std::string_view name, std::string_view value) {
    const std::string* const set = value_of(environment, name);
    return set != nullptr && *set == value;
}

std::vector<fs::path> entries_of(const fs::path& folder) {
    std::vector<fs::path> entries;
    std::error_code ec;
    for (fs::directory_iterator it(folder, ec), end; !ec && it != end; it.increment(ec)) entries.push_back(it->path());
    std::ranges::sort(entries);
    return entries;
}

/// Returns the CPUs near the PCI device whose folder in /sys that is.
CpuSet cpus_near(const fs::path& device) { return parse_number_list(content_of(device / "local_cpulist")); }

bool can_open(const fs::path& device) { return ::access(device.c_str(), R_OK | W_OK) == 0; }

/// Returns the value of a line "Device Minor: \t 3"; empty: there is none.
std::string field(const fs::path& information, std::string_view name) {
    std::ifstream file(information);
    for (std::string line; std::getline(file, line);) {
        if (!line.starts_with(name) || line.size() == name.size() || line[name.size()] != ':') continue;
        const auto begin = line.find_first_not_of(" \t", name.size() + 1);
        return begin == std::string::npos ? "" : line.substr(begin);
    }
    return "";
}

/// Returns whether `name` is `prefix` and a number.
bool is_numbered(std::string_view name, std::string_view prefix) {
    return name.starts_with(prefix) && parse_number<int>(name.substr(prefix.size()));
}

/// Returns an unknown GPU for each device file of NVIDIA's that can be opened.
std::vector<Gpu> nvidia_device_files(const fs::path& root) {
    std::vector<Gpu> gpus;
    for (const fs::path& entry : entries_of(root / "dev"))
        if (is_numbered(entry.filename().string(), "nvidia") && can_open(entry)) gpus.emplace_back();
    return gpus;
}

std::vector<Gpu> nvidia_gpus(const fs::path& root) {
    const std::vector<fs::path> described = entries_of(root / "proc/driver/nvidia/gpus");
    if (described.empty()) return nvidia_device_files(root);  // some virtual machines and containers
    std::vector<Gpu> gpus;
    for (const fs::path& entry : described) {
        const fs::path information = entry / "information";
        if (!can_open(root / "dev" / fmt::format("nvidia{}", field(information, "Device Minor")))) continue;
        std::string uuid = field(information, "GPU UUID");
        if (uuid.find('?') != std::string::npos) uuid.clear();  // as long as no process has used the GPU
        gpus.push_back(
            {std::move(uuid), cpus_near(root / "sys/bus/pci/devices" / entry.filename()), field(information, "Model")});
    }
    return gpus;
}

/// Returns the numbers in the properties of a KFD node; empty if a control group denies it to this process.
std::map<std::string, unsigned long long> properties_of(const fs::path& node) {
    std::map<std::string, unsigned long long> properties;
    std::ifstream file(node / "properties");
    std::string name;
    for (unsigned long long value = 0; file >> name >> value;) properties[name] = value;
    return properties;
}

std::vector<Gpu> amd_gpus(const fs::path& root) {
    if (!can_open(root / "dev/kfd")) return {};
    std::map<int, fs::path> nodes;  // node 10 comes after node 9
    for (const fs::path& node : entries_of(root / "sys/class/kfd/kfd/topology/nodes"))
        if (const auto number = parse_number<int>(node.filename().string())) nodes.emplace(*number, node);
    std::vector<Gpu> gpus;
    for (const auto& [number, node] : nodes) {
        auto properties = properties_of(node);
        if (properties["simd_count"] == 0) continue;                    // a node of CPUs
        const unsigned long long location = properties["location_id"];  // bus, device and function
        const std::string address = fmt::format("{:04x}:{:02x}:{:02x}.{}", properties["domain"], location >> 8 & 0xff,
                                                location >> 3 & 0x1f, location & 7);
        const unsigned long long id = properties["unique_id"];  // 0 on GPUs that have none
        gpus.push_back(
            {id != 0 ? fmt::format("GPU-{:016x}", id) : "", cpus_near(root / "sys/bus/pci/devices" / address), ""});
    }
    return gpus;
}

/// Returns whether the entry of /sys/class/drm is the render node of an Intel GPU that has a driver.
bool is_intel_gpu(const fs::path& render_node) {
    if (!is_numbered(render_node.filename().string(), "renderD")) return false;
    std::ifstream file(render_node / "device/vendor");
    std::string vendor;
    if (!(file >> vendor) || vendor != "0x8086") return false;
    std::error_code ignored;  // a device without a driver cannot be used
    const std::string driver = fs::read_symlink(render_node / "device/driver", ignored).filename().string();
    return driver == "xe" || driver == "i915";
}

std::vector<Gpu> intel_gpus(const fs::path& root) {
    std::map<std::pair<std::string, fs::path>, Gpu> by_address;
    for (const fs::path& node : entries_of(root / "sys/class/drm")) {
        if (!is_intel_gpu(node)) continue;
        std::error_code unknown;
        const fs::path device = fs::canonical(node / "device", unknown);
        by_address.emplace(std::pair(device.filename().string(), device), Gpu{"", cpus_near(device), ""});
    }
    std::vector<Gpu> gpus;
    for (auto& [address, gpu] : by_address) gpus.push_back(std::move(gpu));
    return gpus;
}

/// Returns whether the vendor's library numbers the GPUs as list_gpus() does.
bool listed_by_number(GpuVendor vendor, const std::vector<Gpu>& gpus, const Environment& environment) {
    switch (vendor) {
        case GpuVendor::kNvidia:
            return is(environment, "CUDA_DEVICE_ORDER", "PCI_BUS_ID") ||
                   std::ranges::adjacent_find(gpus, std::not_equal_to{}, &Gpu::model) == gpus.end();
        case GpuVendor::kAmd: return true;
        case GpuVendor::kIntel: return is(environment, "ZE_FLAT_DEVICE_HIERARCHY", "COMPOSITE");
    }
    return true;
}

/// Returns the GPUs that ROCR_VISIBLE_DEVICES shows, in its order.
std::vector<Gpu> shown_by_rocr(std::string_view list, const GpuInventory& all) {
    std::vector<Gpu> shown;
    for (const std::string& entry : entries_in(list)) {
        if (!may_exist(entry, all)) break;
        const Gpu* const gpu = find_gpu(entry, all);
        shown.push_back(gpu != nullptr ? *gpu : Gpu{});
    }
    return shown;
}

}  // namespace

std::vector<Gpu> list_gpus(GpuVendor vendor, const fs::path& root) {
    switch (vendor) {
        case GpuVendor::kNvidia: return nvidia_gpus(root);
        case GpuVendor::kAmd: return amd_gpus(root);
        case GpuVendor::kIntel: return intel_gpus(root);
    }
    return {};
}

GpuInventory gpu_inventory(GpuVendor vendor, const Environment& environment, const fs::path& root) {
    GpuInventory inventory{vendor, list_gpus(vendor, root), true};
    inventory.listed_by_number = listed_by_number(vendor, inventory.gpus, environment);
    const std::string* const rocr = value_of(environment, kRocrDevices);
    if (vendor == GpuVendor::kAmd && rocr != nullptr) inventory.gpus = shown_by_rocr(*rocr, inventory);
    return inventory;
}

const Gpu* find_gpu(const std::string& entry, const GpuInventory& inventory) {
    const auto& gpus = inventory.gpus;
    if (const auto index = parse_number<std::size_t>(entry.substr(0, entry.find('.'))))  // "0.1" is a tile of Intel's
        return inventory.listed_by_number && *index < gpus.size() ? &gpus[*index] : nullptr;
    const bool slice = entry.starts_with("MIG-GPU-");  // MIG-GPU-<uuid>/<instances>
    const std::string uuid = slice ? entry.substr(4, entry.find('/') - 4) : entry;
    const auto matches = [&](const Gpu& gpu) { return gpu.uuid.starts_with(uuid); };
    const auto found = std::ranges::find_if(gpus, matches);
    return std::ranges::count_if(gpus, matches) == 1 ? &*found : nullptr;  // the start of a UUID may be ambiguous
}

bool may_exist(const std::string& entry, const GpuInventory& inventory) {
    const auto& gpus = inventory.gpus;
    if (const auto index = parse_number<std::size_t>(entry.substr(0, entry.find('.'))))
        return *index < gpus.size() || (inventory.vendor == GpuVendor::kIntel && !inventory.listed_by_number);
    if (entry.starts_with("MIG-")) return true;
    const bool unknown_uuids = std::ranges::any_of(gpus, &std::string::empty, &Gpu::uuid);
    return find_gpu(entry, inventory) != nullptr || (unknown_uuids && entry.starts_with("GPU-"));
}

std::string visible_variable(GpuVendor vendor, const Environment& environment) {
    if (vendor == GpuVendor::kIntel) return std::string(kLevelZeroDevices);
    // ROCm reads CUDA's, too, unless its own is set.
    const bool hip =
        vendor == GpuVendor::kAmd && (environment.contains(kHipDevices) || !environment.contains(kCudaDevices));
    return std::string(hip ? kHipDevices : kCudaDevices);
}

std::optional<VisibleList> visible_list(GpuVendor vendor, const Environment& environment) {
    std::string variable = visible_variable(vendor, environment);
    const std::string* const list = value_of(environment, variable);
    if (list == nullptr || (vendor == GpuVendor::kIntel && list->empty())) return std::nullopt;
    return VisibleList{std::move(variable), *list};
}

std::vector<std::string> entries_in(std::string_view list) {
    std::vector<std::string> entries;
    while (!list.empty()) {
        std::string_view entry = list.substr(0, list.find(','));
        list.remove_prefix(std::min(list.size(), entry.size() + 1));
        entry.remove_prefix(std::min(entry.find_first_not_of(" \t"), entry.size()));
        entry = entry.substr(0, entry.find_last_not_of(" \t") + 1);
        if (entry.empty() || entry.starts_with('-')) break;
        entries.emplace_back(entry);
    }
    return entries;
}

std::vector<std::string> visible_gpus(const GpuInventory& inventory, const Environment& environment) {
    std::vector<std::string> names;
    if (inventory.gpus.empty()) return names;  // then the variable means nothing
    if (const auto list = visible_list(inventory.vendor, environment)) {
        names = entries_in(list->list);
        const auto hides = [&](const std::string& entry) { return !may_exist(entry, inventory); };
        names.erase(std::ranges::find_if(names, hides), names.end());
    } else {
        for (std::size_t index = 0; index < inventory.gpus.size(); ++index) names.push_back(std::to_string(index));
    }
    return names;
}

}  // namespace ddprun::launcher
