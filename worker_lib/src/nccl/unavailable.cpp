// The NCCL backend of a build without CUDA or nccl.h: every entry point reports that it is absent.

#include "worker_lib/src/nccl/device/device_access.hpp"
#include "worker_lib/src/nccl/nccl.hpp"

namespace ddp::detail {

NcclAvailability probe_nccl(int) {
    return {false, "this build has no NCCL: configure it with -DDDP_WITH_CUDA=ON, the CUDA Toolkit and nccl.h"};
}

std::unique_ptr<BackendImpl> make_nccl_backend(const GroupSpec&) {
    throw Error(ErrorCode::Unavailable, "no NCCL backend: " + probe_nccl().reason);
}

std::unique_ptr<DeviceAccess> open_device(int) {
    throw Error(ErrorCode::Unavailable, "no CUDA device: " + probe_nccl().reason);
}

}  // namespace ddp::detail
