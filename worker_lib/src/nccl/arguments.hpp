#pragma once
// Checks of a call's arguments that need CUDA. They run before anything of the call is on a stream, so that the caller
// gets Error{InvalidArgument} and the group stays usable.

#include <string>

#include "worker_lib/src/nccl/api.hpp"
#include "worker_lib/src/nccl/work.hpp"

namespace ddp::detail {

/// Returns the problem with the arguments; empty if none is known.
/// device   the group's, which is the calling thread's current one
[[nodiscard]] std::string argument_complaint(const CudaApi& cuda, const NcclWork& work, int device);

/// Returns why `stream` cannot wait for an operation now (the wait would end the program's capture); empty: it can.
[[nodiscard]] std::string wait_complaint(const CudaApi& cuda, CUstream stream);

/// Records `event` behind the current work of the caller's stream. Throws Error{InvalidArgument} for a stream of
/// another device, Error{System} for any other failure.
void record_on_callers_stream(const CudaApi& cuda, CUevent event, const NcclWork& work, int device);

/// Throws Error{InvalidArgument}: "group 'world': rank 1 (…): #3 all_reduce sum f32[3]: " and `wrong`.
[[noreturn]] void refuse(const NcclWork& work, const std::string& wrong);

}  // namespace ddp::detail
