#include "launcher/host/gpus.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <utility>

#include "common/text/number.hpp"
#include "launcher/host/slots.hpp"

namespace fs = std::filesystem;

namespace ddprun::launcher {
namespace {

/// Returns one name for all spellings of a GPU, as far as its UUID is known and no other GPU has it.
std::string identity(const std::string& entry, const GpuInventory& inventory) {
    const Gpu* const gpu = entry.starts_with("MIG-") ? nullptr : find_gpu(entry, inventory);
    if (gpu == nullptr || gpu->uuid.empty() || entry.find('.') != std::string::npos) return entry;
    return std::ranges::count(inventory.gpus, gpu->uuid, &Gpu::uuid) == 1 ? gpu->uuid : entry;
}

/// Returns the vendor of the GPUs that the workers of this machine use. A PyTorch is built for one vendor's devices.
GpuVendor vendor_of_workers(const Options& options, const fs::path& root) {
    const auto wants_intel = [](const Program& program) { return program.slots.kind == Slots::Kind::kXpu; };
    if (std::ranges::any_of(options.programs, wants_intel)) return GpuVendor::kIntel;
    for (const GpuVendor vendor : {GpuVendor::kNvidia, GpuVendor::kAmd})
        if (!list_gpus(vendor, root).empty()) return vendor;
    return GpuVendor::kIntel;
}

GpuInventory inventory_of_workers(const Options& options, const Environment& environment, const fs::path& root) {
    return gpu_inventory(vendor_of_workers(options, root), environment, root);
}

Error refused(std::string_view subject, std::string_view why) {
    return {Errc::kUsage, fmt::format("--gpus: {} {}", subject, why)};
}

/// Returns the error of an entry that is not a GPU of this machine, and what to choose from.
Error no_such_gpu(std::string_view subject, std::string_view entry, const GpuInventory& inventory) {
    const std::size_t count = inventory.gpus.size();
    const std::string_view uuids = inventory.vendor == GpuVendor::kNvidia ? ", or from the UUIDs of `nvidia-smi -L`"
                                   : inventory.vendor == GpuVendor::kAmd  ? ", or from the UUIDs of `rocminfo`"
                                                                          : "";
    return refused(subject, fmt::format("{}is not a GPU of this machine, which has {}. Choose from 0 to {}{}.", entry,
                                        counted(count, "GPU"), count - 1, uuids));
}

/// Returns the identities of the GPUs in the list. Errors: Errc::kUsage, it shows none or one that does not exist.
Result<std::set<std::string>> shown_by(const VisibleList& inherited, const GpuInventory& inventory) {
    const std::string text = fmt::format("{}={}", inherited.variable, inherited.list);
    std::set<std::string> shown;
    for (const std::string& entry : entries_in(inherited.list)) {
        if (!may_exist(entry, inventory)) return no_such_gpu(text + ":", entry + " ", inventory);
        shown.insert(identity(entry, inventory));
    }
    if (shown.empty()) return refused(text, "hides all GPUs. Unset the variable, or leave the option out.");
    return shown;
}

/// Returns advice that makes the locations of GPUs known.
std::string location_remedy(const GpuInventory& inventory) {
    if (!inventory.listed_by_number && inventory.vendor == GpuVendor::kNvidia)
        return "The GPUs are of several models: set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name them by UUID (--gpus).";
    if (!inventory.listed_by_number && inventory.vendor == GpuVendor::kIntel)
        return "A number may mean a tile: set ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE.";
    return "Let ddprun read the files of the driver in /proc and /sys, which a container may hide.";
}

}  // namespace

Result<std::string> choose_gpus(const std::vector<std::string>& wanted, const GpuInventory& inventory,
                                const std::optional<VisibleList>& inherited) {
    std::set<std::string> shown;
    if (inherited) {
        auto entries = shown_by(*inherited, inventory);
        if (!entries) return entries.error();
        shown = std::move(*entries);
    }
    if (wanted.empty() && inherited) return inherited->list;
    std::vector<std::string> chosen = wanted;
    for (std::size_t index = 0; wanted.empty() && index < inventory.gpus.size(); ++index)
        chosen.push_back(std::to_string(index));
    std::set<std::string> seen;
    for (const std::string& entry : chosen) {
        if (!may_exist(entry, inventory)) return no_such_gpu(entry, "", inventory);
        const std::string name = identity(entry, inventory);
        if (inherited && !shown.contains(name)) {
            return refused(entry, fmt::format("is not in {}={}. Choose GPUs of that list, as it names them, or unset "
                                              "the variable.",
                                              inherited->variable, inherited->list));
        }
        if (!seen.insert(name).second) return refused(entry, "is named twice. Name each GPU once.");
    }
    return fmt::format("{}", fmt::join(chosen, ","));
}

Result<void> apply_gpus(Options& options, Environment& environment, const fs::path& root) {
    if (!options.gpus) return {};
    const GpuInventory found = inventory_of_workers(options, environment, root);
    if (found.gpus.empty()) return no_gpu("--gpus", "Leave the option out.");
    const auto list = choose_gpus(*options.gpus, found, visible_list(found.vendor, environment));
    if (!list) return list.error();
    std::set<std::string> variables{visible_variable(found.vendor, environment)};
    if (found.vendor == GpuVendor::kAmd && environment.contains(kCudaDevices)) variables.emplace(kCudaDevices);
    for (const std::string& variable : variables) {
        environment[variable] = *list;
        ::setenv(variable.c_str(), list->c_str(), 1);
    }
    for (Program& program : options.programs) {
        Slots::Kind& follows = program.slots.kind;  // "gpu" and "auto" do not count Intel's otherwise
        if (found.vendor == GpuVendor::kIntel && (follows == Slots::Kind::kGpu || follows == Slots::Kind::kAuto))
            follows = Slots::Kind::kXpu;
    }
    return {};
}

Result<WorkerGpus> gpus_of_workers(const Options& options, int workers, const Environment& environment,
                                   const fs::path& root) {
    const GpuInventory found = inventory_of_workers(options, environment, root);
    const auto count = static_cast<std::size_t>(workers);
    WorkerGpus result{{}, std::vector<CpuSet>(count), location_remedy(found)};
    std::vector<std::string> names = visible_gpus(found, environment);
    if (names.size() < count && options.gpus) {
        return Error{Errc::kUsage,
                     fmt::format("--gpus: {} for the {} workers of this node. Name one for each of them, or "
                                 "start {} (--nproc-per-node).",
                                 counted(names.size(), "GPU"), workers, counted(names.size(), "worker"))};
    }
    if (names.size() < count) return result;  // then the local rank of a worker does not choose its GPU
    names.resize(count);
    for (std::size_t worker = 0; worker < count; ++worker)
        if (const Gpu* gpu = find_gpu(names[worker], found)) result.near[worker] = gpu->near;
    result.names = std::move(names);
    return result;
}

}  // namespace ddprun::launcher
