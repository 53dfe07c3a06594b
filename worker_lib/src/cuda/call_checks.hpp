#pragma once
// Checks of a call's stream and memory, before anything of the call is on a stream. They need the device's context to
// be the calling thread's current one.

#include <string>
#include <string_view>

#include "ddp/buffer.hpp"
#include "worker_lib/src/cuda/driver.hpp"

namespace ddp::detail {

/// Returns why the stream cannot be used during a capture; empty: it can, as far as CUDA reports. The query ends no
/// capture.
[[nodiscard]] std::string capture_complaint(const CudaApi& cuda, CUstream stream);

/// Returns why the device cannot use the buffer's memory; empty if it can. A kernel that touches memory which the
/// device cannot see leaves a sticky error, after which the process cannot use CUDA any more.
/// name    of the buffer in the text
/// device  index of the current device
[[nodiscard]] std::string memory_complaint(const CudaApi& cuda, const Buffer& buffer, std::string_view name,
                                           int device);

}  // namespace ddp::detail
