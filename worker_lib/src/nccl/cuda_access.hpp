#pragma once
// DeviceAccess over a given function table: what device_access.hpp's open_device calls with the real one, and tests
// with a fake.

#include "worker_lib/src/device_access.hpp"
#include "worker_lib/src/nccl/nccl_api.hpp"

namespace ddp::detail {

[[nodiscard]] std::unique_ptr<DeviceAccess> open_device(const CudaApi& cuda, int device);

}  // namespace ddp::detail
