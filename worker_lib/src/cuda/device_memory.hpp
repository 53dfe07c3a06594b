#pragma once
// Finds device memory among addresses that a caller declares as host memory, before the CPU touches it. Any thread.

#include <optional>

#include "worker_lib/src/cuda/abi.hpp"

namespace ddp::detail {

/// Returns the CUDA device in whose memory the address is; nothing: the host can use it, or no PrimaryContext exists in
/// this process. Needs no current context. Costs one call of the driver, or one load where no context exists.
[[nodiscard]] std::optional<int> device_holding(const void* address);

/// Has device_holding() ask this driver until the matching end_lookups(): while one of its contexts exists.
void begin_lookups(const abi::CudaApi& cuda);
void end_lookups();

}  // namespace ddp::detail
