#pragma once
// Asks the NVIDIA driver about the GPUs of this machine, by the management library that nvidia-smi uses. It is opened
// at run time, so that one program runs with and without GPUs. No CUDA context is made, and no memory of
// a GPU is used. The driver's calls may hang at a GPU that has fallen off the bus, so the query has a time limit.

#include <optional>
#include <string>
#include <vector>

#include "worker_lib/check/facts.hpp"

namespace ddp::check {

/// The answers of the driver.
struct GpuFacts {
    std::vector<Gpu> gpus;
    std::optional<std::string> driver;
    std::optional<std::string> cuda;
    std::string note;  ///< why there is no answer; empty: there is one
};

/// Asks libnvidia-ml.so.1, as the dynamic linker finds it, about all GPUs of this machine, for 20 s at most. The note
/// of a driver that takes longer is kDriverHangs.
[[nodiscard]] GpuFacts query_gpus();

/// Returns the version of the NCCL that ddp::ddp would use: of the file in DDPRUN_NCCL_LIBRARY, of the libnccl.so.2
/// that the dynamic linker finds, or of one that pip has installed; nullopt: there is none.
[[nodiscard]] std::optional<std::string> query_nccl();

}  // namespace ddp::check
