#include "worker_lib/src/nccl/nccl.hpp"

#include <fmt/format.h>

#include <fstream>

#include "common/text/number.hpp"
#include "worker_lib/src/nccl/backend.hpp"
#include "worker_lib/src/nccl/library.hpp"

namespace ddp::detail {

std::unique_ptr<BackendImpl> make_nccl_backend(const GroupSpec& spec) {
    const auto api = load_gpu_api();
    if (!api) throw Error(ErrorCode::Unavailable, "no NCCL backend: " + api.error().message);
    return make_nccl_backend(spec, *api, read_limits(process_variables()));
}

namespace {

constexpr int kFirstWithSharedGpus = 23003;  // NCCL 2.30.3 knows NCCL_MULTI_RANK_GPU_ENABLE

/// Returns the name by which NCCL distinguishes the host of this rank from others.
std::string host_for_nccl(const Variables& variables) {
    if (auto set = nccl_setting(variables, "NCCL_HOSTID")) return *set;
    std::string boot;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
    return fmt::format("{}-{}", hostname(), boot);
}

/// Returns NcclAvailability::gpu.
std::string gpu_for_nccl(const GpuApi& api, int device, const Variables& variables) {
    const bool may_share = nccl_setting(variables, "NCCL_MULTI_RANK_GPU_ENABLE").value_or("0") != "0";
    if (may_share && api.nccl_version >= kFirstWithSharedGpus) return {};
    const std::string bus_id = device_bus_id(api.cuda, device);
    return bus_id.empty() ? bus_id : fmt::format("{}/{}", bus_id, host_for_nccl(variables));
}

}  // namespace

NcclAvailability probe_nccl(int device, int local_rank) {
    const auto api = load_gpu_api();
    if (api) return probe_nccl(*api, device, local_rank, process_variables());
    NcclAvailability found{.usable = false, .reason = api.error().message};
    const auto cuda = load_cuda();
    found.has_devices = cuda && count_devices(*cuda);
    return found;
}

NcclAvailability probe_nccl(const GpuApi& api, int device, int local_rank, const Variables& variables) {
    const std::string nccl = fmt::format("NCCL {}", nccl_version_text(api.nccl_version));
    const auto count = count_devices(api.cuda);
    if (!count) return {false, fmt::format("{} is present, but {}", nccl, count.error().message)};
    const std::string present = fmt::format("{} and {} are present", nccl, ddprun::counted(*count, "CUDA device"));
    const int chosen = device >= 0 ? device : device_of_local_rank(*count, local_rank);
    NcclAvailability found{.usable = chosen < *count, .reason = present, .device = chosen, .has_devices = true};
    if (found.usable) {
        found.gpu = gpu_for_nccl(api, chosen, variables);
        found.uuid = device_uuid(api.cuda, chosen);
    } else {
        found.reason += visible_devices_note() + ", but ";
        found.reason +=
            device >= 0 ? fmt::format("no CUDA device {}", device) : fmt::format("none for local rank {}", local_rank);
    }
    return found;
}

}  // namespace ddp::detail
