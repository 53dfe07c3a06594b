#pragma once
// The entry points of the NCCL backend over the libraries of this machine.

#include <memory>
#include <string>

#include "worker_lib/src/bootstrap/group_spec.hpp"
#include "worker_lib/src/group/backend.hpp"

namespace ddp::detail {

/// Makes the backend of one group. Throws Error{Unavailable} when there is no NCCL, driver or device here; else as
/// make_nccl_backend in worker_lib/src/nccl/backend.hpp.
[[nodiscard]] std::unique_ptr<BackendImpl> make_nccl_backend(const GroupSpec& spec);

/// The result of probe_nccl().
struct NcclAvailability {
    bool usable = false;
    std::string reason;  ///< "NCCL 2.28.9 is present, but there is no CUDA device"; or what is present
};
/// Reports whether NCCL is usable on this machine, and why not.
/// device   index, as GroupSpec::device
[[nodiscard]] NcclAvailability probe_nccl(int device = 0);

}  // namespace ddp::detail
