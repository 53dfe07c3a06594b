#include "worker_lib/src/nccl/nccl.hpp"

#include <fmt/format.h>

#include "common/text/number.hpp"
#include "worker_lib/src/nccl/backend.hpp"
#include "worker_lib/src/nccl/library.hpp"

namespace ddp::detail {

std::unique_ptr<BackendImpl> make_nccl_backend(const GroupSpec& spec) {
    const auto api = load_gpu_api();
    if (!api) throw Error(ErrorCode::Unavailable, "no NCCL backend: " + api.error().message);
    return make_nccl_backend(spec, *api, NcclLimits{});
}

namespace {

constexpr int kFirstWithSharedGpus = 23003;  // NCCL 2.30.3 knows NCCL_MULTI_RANK_GPU_ENABLE

/// Returns NcclAvailability::gpu.
std::string gpu_for_nccl(const GpuApi& api, int device, const Variables& variables) {
    const bool may_share = variables("NCCL_MULTI_RANK_GPU_ENABLE").value_or("0") != "0";
    if (may_share && api.nccl_version >= kFirstWithSharedGpus) return {};
    const std::string uuid = device_uuid(api.cuda, device);
    // A UUID is unique in the world. But NCCL takes ranks with different values of NCCL_HOSTID for ranks of two hosts,
    // and such ranks may share a GPU.
    const auto host = variables("NCCL_HOSTID");
    return uuid.empty() || !host ? uuid : fmt::format("{}/{}", uuid, *host);
}

}  // namespace

NcclAvailability probe_nccl(int device, int local_rank) {
    const auto api = load_gpu_api();
    if (!api) return {false, api.error().message};
    return probe_nccl(*api, device, local_rank, process_variables());
}

NcclAvailability probe_nccl(const GpuApi& api, int device, int local_rank, const Variables& variables) {
    const std::string nccl = fmt::format("NCCL {}", nccl_version_text(api.nccl_version));
    const auto count = count_devices(api.cuda);
    if (!count) return {false, fmt::format("{} is present, but {}", nccl, count.error().message)};
    const std::string present = fmt::format("{} and {} are present", nccl, ddprun::counted(*count, "CUDA device"));
    if (device >= *count) return {false, fmt::format("{}, but no CUDA device {}", present, device)};
    const int chosen = device >= 0 ? device : device_of_local_rank(*count, local_rank);
    if (chosen >= *count) return {false, fmt::format("{}, but none for local rank {}", present, local_rank)};
    return {true, present, chosen, gpu_for_nccl(api, chosen, variables)};
}

}  // namespace ddp::detail
