#pragma once
// The NCCL backend over given function tables: the real ones (nccl.cpp), or a test's fake.

#include "worker_lib/src/nccl/api.hpp"
#include "worker_lib/src/nccl/communicator.hpp"
#include "worker_lib/src/nccl/nccl.hpp"

namespace ddp::detail {

/// Makes the backend of one group. Collective over spec.members, each on a device of its own, spec.device, which
/// probe_nccl() has found. Throws Error{Timeout} naming absent ranks, Error{System} with the text of NCCL or CUDA.
[[nodiscard]] std::unique_ptr<BackendImpl> make_nccl_backend(const GroupSpec& spec, const GpuApi& api,
                                                             const NcclLimits& limits);

}  // namespace ddp::detail
