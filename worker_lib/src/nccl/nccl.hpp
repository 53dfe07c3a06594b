#pragma once
// The entry points of the NCCL backend over the libraries of this machine.

#include <memory>
#include <string>

#include "worker_lib/src/bootstrap/environment.hpp"
#include "worker_lib/src/bootstrap/group_spec.hpp"
#include "worker_lib/src/group/backend.hpp"
#include "worker_lib/src/nccl/api.hpp"

namespace ddp::detail {

/// Makes the backend of one group. Throws Error{Unavailable} when there is no NCCL, driver or device here; else as
/// make_nccl_backend in worker_lib/src/nccl/backend.hpp.
[[nodiscard]] std::unique_ptr<BackendImpl> make_nccl_backend(const GroupSpec& spec);

/// The result of probe_nccl().
struct NcclAvailability {
    bool usable = false;
    std::string reason;  ///< "NCCL 2.28.9 is present, but there is no CUDA device"; or what is present
    int device = 0;      ///< index, as GroupSpec::device
    /// The bus id of the GPU and what NCCL takes for its host: two ranks with the same text would share a GPU, also
    /// with MIG slices of their own, which NCCL refuses. Empty: unknown, or this NCCL has been set to allow it.
    std::string gpu = {};
    std::string uuid = {};     ///< of the GPU, or of its slice; empty: unknown
    bool has_devices = false;  ///< the driver has some, usable or not
};
/// Reports whether NCCL is usable on this machine, why not, and on which device.
/// device   index; -1: that of the local rank, or the only one that is visible, as under `srun --gpus-per-task=1`
[[nodiscard]] NcclAvailability probe_nccl(int device = -1, int local_rank = 0);
/// The same over given functions, such as a test's fake.
[[nodiscard]] NcclAvailability probe_nccl(const GpuApi& api, int device, int local_rank, const Variables& variables);

}  // namespace ddp::detail
