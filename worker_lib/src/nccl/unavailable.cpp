// The NCCL backend of a build without CUDA or nccl.h: every entry point reports that it is absent.

#include "worker_lib/src/nccl/device_access.hpp"
#include "worker_lib/src/nccl/nccl.hpp"

namespace ddp::detail {

NcclAvailability probe_nccl(int) {
    return {false, "built without NCCL (configure with the CUDA Toolkit and nccl.h, DDP_WITH_CUDA=ON)"};
}

std::unique_ptr<BackendImpl> make_nccl_backend(const GroupSpec&) {
    throw Error(ErrorCode::Unavailable, "no NCCL backend: " + probe_nccl().reason);
}

std::unique_ptr<DeviceAccess> open_device(int) {
    throw Error(ErrorCode::Unavailable, "no CUDA device: " + probe_nccl().reason);
}

}  // namespace ddp::detail
