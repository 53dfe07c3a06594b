#include "launcher/host/slots.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "common/system/process.hpp"
#include "common/text/number.hpp"

namespace fs = std::filesystem;

namespace ddprun::launcher {
namespace {

int device_files(const fs::path& folder) {
    int count = 0;
    std::error_code ec;
    for (fs::directory_iterator it(folder, ec), end; !ec && it != end; it.increment(ec)) {
        const std::string name = it->path().filename().string();
        constexpr std::string_view kPrefix = "nvidia";
        const bool device = name.starts_with(kPrefix) && name.size() > kPrefix.size() &&
                            name.find_first_not_of("0123456789", kPrefix.size()) == std::string::npos;
        count += device ? 1 : 0;
    }
    return count;
}

/// Counts the entries of CUDA_VISIBLE_DEVICES. CUDA stops at the first invalid one; "-1" hides all devices.
int visible_devices(std::string_view list) {
    int count = 0;
    while (!list.empty()) {
        const std::string_view entry = list.substr(0, list.find(','));
        if (entry.empty() || entry.starts_with('-')) break;
        ++count;
        list.remove_prefix(std::min(list.size(), entry.size() + 1));
    }
    return count;
}

}  // namespace

Machine this_machine(const Environment& environment, const fs::path& devices) {
    Machine machine{allowed_cpus(), device_files(devices)};
    const auto visible = environment.find("CUDA_VISIBLE_DEVICES");
    // Entries may outnumber the devices: each can be a slice (MIG) of one. Without a device the variable means nothing.
    if (visible != environment.end() && machine.gpus > 0) machine.gpus = visible_devices(visible->second);
    return machine;
}

Result<int> worker_count(const Slots& slots, const Machine& machine) {
    switch (slots.kind) {
        case Slots::Kind::kCount: return slots.count;
        case Slots::Kind::kCpu: return machine.cpus;
        case Slots::Kind::kAuto: return machine.gpus > 0 ? machine.gpus : machine.cpus;
        case Slots::Kind::kGpu: break;
    }
    if (machine.gpus > 0) return machine.gpus;
    return Error{Errc::kUsage,
                 "--nproc-per-node gpu: this machine has no GPU to use (no /dev/nvidia<number>, or "
                 "CUDA_VISIBLE_DEVICES hides all). Write a number, cpu or auto."};
}

Result<void> check_gpus(const Options& options, int slots, const Environment& environment) {
    const auto visible = environment.find("CUDA_VISIBLE_DEVICES");
    if (!options.virtual_local_rank || visible == environment.end()) return {};
    if (gpu_of(&visible->second, LocalRank{slots - 1})) return {};
    const auto named = std::ranges::count(visible->second, ',') + 1;
    return Error{Errc::kUsage,
                 fmt::format("--virtual-local-rank: CUDA_VISIBLE_DEVICES={} names {} for the {} workers of this node. "
                             "Name one for each of them, or pass --nproc-per-node {}.",
                             visible->second, counted(named, "GPU"), slots, named)};
}

}  // namespace ddprun::launcher
