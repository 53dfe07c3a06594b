#pragma once
// What only CUDA knows to be wrong with a call's arguments. Asked before anything of the call is on a stream, so that
// its caller gets Error{InvalidArgument} and the group stays usable.

#include <string>

#include "worker_lib/src/nccl/nccl_api.hpp"
#include "worker_lib/src/nccl/nccl_work.hpp"

namespace ddp::detail {

/// Empty: nothing is known.
/// device   the group's; it is the calling thread's current one
[[nodiscard]] std::string argument_complaint(const CudaApi& cuda, const NcclWork& work, int device);

/// Why `stream` cannot wait for an operation now: the wait would end the program's capture. Empty: nothing is known.
[[nodiscard]] std::string wait_complaint(const CudaApi& cuda, cudaStream_t stream);

/// Records `event` behind what is on the work's stream now. Throws Error{InvalidArgument} for a stream of another
/// device, Error{System} for what else CUDA says.
void record_on_callers_stream(const CudaApi& cuda, cudaEvent_t event, const NcclWork& work, int device);

/// "#3 all_reduce sum f32[3]: what is wrong".
[[noreturn]] void refuse(const NcclWork& work, const std::string& wrong);

}  // namespace ddp::detail
