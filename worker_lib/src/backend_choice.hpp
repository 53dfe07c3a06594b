#pragma once
// Which backend a job uses. Pure: what was asked, what NCCL says, what the machine looks like; out comes a choice and
// its reason.

#include <string>

#include "worker_lib/src/backend.hpp"

namespace ddp::detail {

struct BackendChoice {
    Backend backend = Backend::Native;
    std::string reason;  ///< one line for the user; empty when there is nothing to say
};

/// `gpu_expected`: something on this machine suggests a GPU, so that falling back is worth a line.
[[nodiscard]] BackendChoice choose_backend(Backend asked, const NcclAvailability& nccl, bool gpu_expected);

/// A device node of NVIDIA's driver exists, or CUDA_VISIBLE_DEVICES names a device.
[[nodiscard]] bool gpu_expected_here();

}  // namespace ddp::detail
