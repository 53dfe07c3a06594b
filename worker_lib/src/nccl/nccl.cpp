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

NcclAvailability probe_nccl(int device) {
    const auto api = load_gpu_api();
    if (!api) return {false, api.error().message};
    const std::string nccl = fmt::format("NCCL {}", nccl_version_text(api->nccl_version));
    const auto count = count_devices(api->cuda);
    if (!count) return {false, fmt::format("{} is present, but {}", nccl, count.error().message)};
    const std::string present = fmt::format("{} and {} are present", nccl, ddprun::counted(*count, "CUDA device"));
    if (device >= *count) return {false, fmt::format("{}, but none for local rank {}", present, device)};
    return {true, present};
}

}  // namespace ddp::detail
