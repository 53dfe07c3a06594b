#pragma once
// NCCL and the CUDA driver as two tables of function pointers. They are filled by dlopen, so that one binary runs with
// and without a GPU, or by a test's fake (fake_nccl.hpp).

#include <string>

#include "common/error.hpp"
#include "worker_lib/src/cuda/driver.hpp"
#include "worker_lib/src/nccl/abi.hpp"

namespace ddp::detail {

using namespace abi;

/// Both tables, as load_gpu_api() fills them.
struct GpuApi {
    NcclApi nccl;
    CudaApi cuda;
    int nccl_version = 0;  ///< as NCCL codes it: 22809 is 2.28.9
};

/// Loads NCCL and the CUDA driver. They stay open until the process ends, because both have threads and exit handlers
/// of their own. The error names the library or function that is missing, the version of NCCL that is too old, or the
/// driver that is too old for it.
[[nodiscard]] ddprun::Result<GpuApi> load_gpu_api();

/// NCCL alone, which loads without a driver, too.
struct NcclLibrary {
    NcclApi api;
    int version = 0;
    std::string file;    ///< its path
    int built_with = 0;  ///< the CUDA version, as the driver codes it: 12040 is 12.4; 0: unknown
};
[[nodiscard]] ddprun::Result<NcclLibrary> load_nccl();

}  // namespace ddp::detail
