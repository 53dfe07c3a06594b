#include "worker_lib/src/backend_choice.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace ddp::detail {

BackendChoice choose_backend(Backend asked, const NcclAvailability& nccl, bool gpu_expected) {
    if (asked == Backend::Native) return {};
    if (nccl.usable) return {Backend::Nccl, {}};
    if (asked == Backend::Auto && !gpu_expected) return {};
    return {Backend::Native,
            fmt::format("NCCL is not usable here ({}): collectives run on the native CPU backend", nccl.reason)};
}

bool gpu_expected_here() {
    if (::access("/dev/nvidia0", F_OK) == 0) return true;
    const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
    return visible != nullptr && *visible != '\0' && std::string_view(visible) != "-1";
}

}  // namespace ddp::detail
