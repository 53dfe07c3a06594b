#pragma once
// Asks the NVIDIA driver about the GPUs of this machine, by the management library that nvidia-smi uses. It is opened
// at run time, so that one program runs with and without GPUs. No CUDA context is made: a GPU that hangs is not
// touched.

#include <optional>
#include <string>
#include <vector>

#include "worker_lib/check/facts.hpp"

namespace ddp::check {

/// What the driver answers.
struct GpuFacts {
    std::vector<Gpu> gpus;
    std::optional<std::string> driver;
    std::optional<std::string> cuda;
    std::string note;  ///< why there is no answer; empty: there is one
};

/// Asks libnvidia-ml.so.1, as the dynamic linker finds it.
[[nodiscard]] GpuFacts query_gpus();

/// Returns the version of the NCCL that ddp::ddp would use: of the file in DDPRUN_NCCL_LIBRARY, of the libnccl.so.2
/// that the dynamic linker finds, or of one that pip has installed; nullopt: there is none.
[[nodiscard]] std::optional<std::string> query_nccl();

}  // namespace ddp::check
