#include "launcher/host/gpus.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <utility>

#include "common/system/files.hpp"
#include "common/text/number.hpp"
#include "launcher/host/devices.hpp"
#include "launcher/host/slots.hpp"

namespace fs = std::filesystem;

namespace ddprun::launcher {
namespace {

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

std::vector<Gpu> nvidia_gpus(const fs::path& root) {
    std::vector<Gpu> gpus;
    for (const fs::path& entry : entries_of(root / "proc/driver/nvidia/gpus")) {
        const fs::path information = entry / "information";
        if (!can_open(root / "dev" / fmt::format("nvidia{}", field(information, "Device Minor")))) continue;
        gpus.push_back({field(information, "GPU UUID"), cpus_near(root / "sys/bus/pci/devices" / entry.filename())});
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
        gpus.push_back(
            {fmt::format("GPU-{:016x}", properties["unique_id"]), cpus_near(root / "sys/bus/pci/devices" / address)});
    }
    return gpus;
}

std::vector<Gpu> intel_gpus(const fs::path& root) {
    std::map<std::string, Gpu> by_address;
    for (const fs::path& node : entries_of(root / "sys/class/drm")) {
        if (!is_intel_gpu(node)) continue;
        std::error_code unknown;
        const fs::path device = fs::canonical(node / "device", unknown);
        by_address.emplace(device.filename().string(), Gpu{"", cpus_near(device)});
    }
    std::vector<Gpu> gpus;
    for (auto& [address, gpu] : by_address) gpus.push_back(std::move(gpu));
    return gpus;
}

/// Returns the GPU that an entry of a list of visible devices names; null: it is not known.
const Gpu* find_gpu(const std::string& entry, const std::vector<Gpu>& gpus) {
    if (const auto index = parse_number<std::size_t>(entry.substr(0, entry.find('.')))) {  // "0.1" is a tile of Intel's
        return *index < gpus.size() ? &gpus[*index] : nullptr;
    }
    const bool slice = entry.starts_with("MIG-GPU-");  // MIG-GPU-<uuid>/<instances>
    const std::string uuid = slice ? entry.substr(4, entry.find('/') - 4) : entry;
    const auto found = std::ranges::find_if(gpus, [&](const Gpu& gpu) { return gpu.uuid.starts_with(uuid); });
    return found != gpus.end() ? &*found : nullptr;
}

/// Returns one name for all spellings of a GPU, as far as its UUID is known.
std::string identity(const std::string& entry, const std::vector<Gpu>& gpus) {
    const Gpu* gpu = entry.starts_with("MIG-") ? nullptr : find_gpu(entry, gpus);
    return gpu != nullptr && !gpu->uuid.empty() ? gpu->uuid : entry;
}

bool exists(const std::string& entry, int count, const std::vector<Gpu>& gpus) {
    if (const auto index = parse_number<int>(entry)) return *index < count;
    // A slice has a UUID of its own, which the driver's files do not list.
    return entry.starts_with("MIG-") || gpus.empty() || find_gpu(entry, gpus) != nullptr;
}

/// Returns the GPUs that `list` shows, in its order. An entry that is not known becomes a Gpu of unknown place.
std::vector<Gpu> gpus_in(std::string_view list, const std::vector<Gpu>& gpus) {
    std::vector<Gpu> shown;
    for (const std::string& entry : entries_in(list)) {
        const Gpu* const gpu = find_gpu(entry, gpus);
        shown.push_back(gpu != nullptr ? *gpu : Gpu{});
    }
    return shown;
}

/// The GPUs of this machine before any list of visible devices but ROCm's own limits them.
struct Inventory {
    std::optional<GpuMaker> maker;  ///< absent: there is no GPU
    int count = 0;
    std::vector<Gpu> gpus;  ///< as of list_gpus()
};

Inventory inventory(const Options& options, const Environment& environment, const fs::path& root) {
    Environment limits;
    const std::string* const rocr = list_in(environment, kRocrDevices);
    if (rocr != nullptr) limits.emplace(kRocrDevices, *rocr);
    const Machine machine = this_machine(limits, root);
    const bool intel = options.slots.kind == Slots::Kind::kXpu || machine.gpus == 0;
    Inventory found;
    found.count = intel ? machine.xpus : machine.gpus;
    if (found.count == 0) return found;
    found.maker = intel ? GpuMaker::kIntel : machine.gpus_are_amd ? GpuMaker::kAmd : GpuMaker::kNvidia;
    found.gpus = list_gpus(*found.maker, root);
    if (found.maker == GpuMaker::kAmd && rocr != nullptr) found.gpus = gpus_in(*rocr, found.gpus);
    return found;
}

/// Returns the variable in which the maker's library finds the list of visible devices.
std::string variable_of(GpuMaker maker, const Environment& environment) {
    if (maker == GpuMaker::kIntel) return std::string(kLevelZeroDevices);
    // ROCm reads CUDA's, too, unless its own is set.
    const bool hip =
        maker == GpuMaker::kAmd && (environment.contains(kHipDevices) || !environment.contains(kCudaDevices));
    return std::string(hip ? kHipDevices : kCudaDevices);
}

std::optional<InheritedList> inherited_list(GpuMaker maker, const Environment& environment) {
    const std::string variable = variable_of(maker, environment);
    const std::string* const list = list_in(environment, variable);
    if (list == nullptr || (maker == GpuMaker::kIntel && list->empty())) return std::nullopt;  // Intel's: hides nothing
    return InheritedList{variable, *list};
}

}  // namespace

std::vector<Gpu> list_gpus(GpuMaker maker, const fs::path& root) {
    switch (maker) {
        case GpuMaker::kNvidia: return nvidia_gpus(root);
        case GpuMaker::kAmd: return amd_gpus(root);
        case GpuMaker::kIntel: return intel_gpus(root);
    }
    return {};
}

Result<std::string> choose_gpus(const std::vector<std::string>& wanted, int count, const std::vector<Gpu>& gpus,
                                const std::optional<InheritedList>& inherited) {
    const auto refused = [](std::string_view entry, std::string_view why) {
        return Error{Errc::kUsage, fmt::format("--gpus: {} {}", entry, why)};
    };
    std::set<std::string> visible;
    if (inherited) {
        for (const std::string& entry : entries_in(inherited->list)) visible.insert(identity(entry, gpus));
        if (visible.empty())
            return refused(fmt::format("{}={}", inherited->variable, inherited->list),
                           "hides all GPUs. Unset the variable, or leave the option out.");
    }
    if (wanted.empty() && inherited) return inherited->list;
    std::vector<std::string> chosen = wanted;
    for (int index = 0; wanted.empty() && index < count; ++index) chosen.push_back(std::to_string(index));
    std::set<std::string> seen;
    for (const std::string& entry : chosen) {
        if (!exists(entry, count, gpus)) {
            return refused(entry,
                           fmt::format("is not a GPU of this machine, which has {}. Choose from 0 to {}, or from "
                                       "the UUIDs that `nvidia-smi -L` shows.",
                                       counted(count, "GPU"), count - 1));
        }
        const std::string name = identity(entry, gpus);
        if (inherited && !visible.contains(name)) {
            return refused(entry, fmt::format("is hidden by {}={}. Choose GPUs of that list, or unset the variable.",
                                              inherited->variable, inherited->list));
        }
        if (!seen.insert(name).second) return refused(entry, "is named twice. Name each GPU once.");
    }
    return fmt::format("{}", fmt::join(chosen, ","));
}

Result<void> apply_gpus(Options& options, Environment& environment, const fs::path& root) {
    if (!options.gpus) return {};
    const Inventory found = inventory(options, environment, root);
    if (!found.maker) return no_gpu("--gpus", "Leave the option out.");
    const auto list = choose_gpus(*options.gpus, found.count, found.gpus, inherited_list(*found.maker, environment));
    if (!list) return list.error();
    std::set<std::string> variables{variable_of(*found.maker, environment)};
    if (found.maker == GpuMaker::kAmd && environment.contains(kCudaDevices)) variables.emplace(kCudaDevices);
    for (const std::string& variable : variables) {
        environment[variable] = *list;
        ::setenv(variable.c_str(), list->c_str(), 1);
    }
    const Slots::Kind follows = options.slots.kind;  // "gpu" and "auto" do not count Intel's otherwise
    if (found.maker == GpuMaker::kIntel && (follows == Slots::Kind::kGpu || follows == Slots::Kind::kAuto))
        options.slots.kind = Slots::Kind::kXpu;
    return {};
}

Result<WorkerGpus> gpus_of_workers(const Options& options, int workers, const Environment& environment,
                                   const fs::path& root) {
    const Inventory found = inventory(options, environment, root);
    const auto count = static_cast<std::size_t>(workers);
    WorkerGpus result{{}, std::vector<CpuSet>(count)};
    if (!found.maker) return result;
    const auto list = inherited_list(*found.maker, environment);
    std::vector<std::string> names;
    if (list) names = entries_in(list->list);
    for (int index = 0; !list && index < found.count; ++index) names.push_back(std::to_string(index));
    if (names.size() < count && options.gpus) {
        return Error{Errc::kUsage,
                     fmt::format("--gpus: {} for the {} workers of this node. Name one for each of them, or "
                                 "pass --nproc-per-node {}.",
                                 counted(names.size(), "GPU"), workers, names.size())};
    }
    if (names.size() < count) return result;  // then the local rank of a worker does not choose its GPU
    names.resize(count);
    for (std::size_t worker = 0; worker < count; ++worker)
        if (const Gpu* gpu = find_gpu(names[worker], found.gpus)) result.near[worker] = gpu->near;
    result.names = std::move(names);
    return result;
}

}  // namespace ddprun::launcher
