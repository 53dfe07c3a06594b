#include "launcher/host/slots.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "common/system/cpu_set.hpp"
#include "common/system/process.hpp"
#include "common/text/number.hpp"
#include "launcher/host/devices.hpp"
#include "launcher/host/gpu_inventory.hpp"

namespace fs = std::filesystem;

namespace ddprun::launcher {
namespace {

Error no_devices(std::string_view option, std::string_view device, std::string_view sought, std::string_view remedy) {
    return {Errc::kUsage, fmt::format("{}: this machine has no {} to use ({}). {}", option, device, sought, remedy)};
}

constexpr std::string_view kOtherNumber = "Write a number, cpu or auto.";

}  // namespace

Machine this_machine(const Environment& environment, const fs::path& root) {
    const Devices devices = count_devices(environment, root);
    Machine machine{.cpus = allowed_cpus(), .gpus = devices.nvidia, .xpus = devices.intel};
    if (devices.nvidia == 0 && devices.amd > 0) {  // a PyTorch is built for one vendor's devices
        machine.gpus = devices.amd;
        machine.gpus_are_amd = true;
    }
    return machine;
}

Result<int> worker_count(const Slots& slots, const Machine& machine) {
    switch (slots.kind) {
        case Slots::Kind::kCount: return slots.count;
        case Slots::Kind::kCpu: return machine.cpus;
        case Slots::Kind::kAuto: return machine.gpus > 0 ? machine.gpus : machine.cpus;
        case Slots::Kind::kGpu: break;
        case Slots::Kind::kXpu:
            if (machine.xpus > 0) return machine.xpus;
            return no_devices("--nproc-per-node xpu", "Intel GPU",
                              "no /sys/class/drm/renderD<number> of Intel with the driver xe or i915, or "
                              "ZE_AFFINITY_MASK names none",
                              kOtherNumber);
    }
    if (machine.gpus > 0) return machine.gpus;
    return no_gpu("--nproc-per-node gpu", kOtherNumber);
}

Error no_gpu(std::string_view option, std::string_view remedy) {
    return no_devices(option, "GPU",
                      "no /dev/nvidia<number> and no /dev/kfd with a GPU in /sys/class/kfd/kfd/topology that this user "
                      "may open; or CUDA_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES or ROCR_VISIBLE_DEVICES hides all",
                      remedy);
}

std::vector<std::string> device_variables(const Options& options, const Machine& machine,
                                          const Environment& environment) {
    if (!options.virtual_local_rank) return {};
    std::vector<std::string> names{std::string(kCudaDevices)};
    if (machine.gpus_are_amd || environment.contains(kHipDevices)) names.emplace_back(kHipDevices);
    if (environment.contains(kLevelZeroDevices)) names.emplace_back(kLevelZeroDevices);
    return names;
}

Result<void> check_visible_devices(const std::vector<std::string>& variables, int slots,
                                   const Environment& environment) {
    for (const std::string& name : variables) {
        const auto visible = environment.find(name);
        if (visible == environment.end() || visible_device(visible->second, LocalRank{slots - 1})) continue;
        const auto named = std::ranges::count(visible->second, ',') + 1;
        return Error{Errc::kUsage,
                     fmt::format("--virtual-local-rank: {}={} names {} for the {} workers of this node. Name one for "
                                 "each of them, or start {} (--nproc-per-node).",
                                 name, visible->second, counted(named, "GPU"), slots, counted(named, "worker"))};
    }
    return {};
}

}  // namespace ddprun::launcher
