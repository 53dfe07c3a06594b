#pragma once
// The NCCL backend over given function tables: what backend.hpp's make_nccl_backend calls with the real ones, and tests
// with a fake.

#include "worker_lib/src/backend.hpp"
#include "worker_lib/src/nccl/communicator.hpp"
#include "worker_lib/src/nccl/nccl_api.hpp"

namespace ddp::detail {

/// Collective over spec.members, each on a device of its own (spec.device; -1: the calling thread's current one).
/// Throws Error{Unavailable} without a device, Error{Timeout} naming absent ranks, Error{System} with NCCL's words.
[[nodiscard]] std::unique_ptr<BackendImpl> make_nccl_backend(const GroupSpec& spec, const GpuApi& api,
                                                             const NcclLimits& limits);

}  // namespace ddp::detail
