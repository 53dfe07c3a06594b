#pragma once
// The CUDA driver as a table of function pointers. It is filled by dlopen, so that one binary runs with and without a
// GPU, or by a test's fake.

#include <string>
#include <string_view>

#include "common/error.hpp"
#include "worker_lib/src/cuda/abi.hpp"

namespace ddp::detail {

using namespace abi;

/// Loads the CUDA driver, which stays open until the process ends. Needs no device. The error names the library or
/// function that is missing.
[[nodiscard]] ddprun::Result<CudaApi> load_cuda();

/// Starts the driver in this process and returns the number of CUDA devices; an error when there is none.
[[nodiscard]] ddprun::Result<int> count_devices(const CudaApi& cuda);

/// Returns the index of the device that a rank uses: the one of its local rank, or the only one that its process sees,
/// as under `srun --gpus-per-task=1`. `count`: of devices; a local rank above them has none.
[[nodiscard]] constexpr int device_of_local_rank(int count, int local_rank) { return count == 1 ? 0 : local_rank; }

/// Returns the UUID of a device as nvidia-smi prints it, "GPU-5fd2…"; empty if the driver does not know it. That of a
/// MIG slice is its own. The driver has to be started: see count_devices().
[[nodiscard]] std::string device_uuid(const CudaApi& cuda, int index);

/// Returns the device's address on the PCI bus, "0000:59:00"; empty if the driver does not know it. MIG slices have
/// that of their GPU.
[[nodiscard]] std::string device_bus_id(const CudaApi& cuda, int index);

/// Returns " (CUDA_VISIBLE_DEVICES=0,1)" if the variable limits the devices that this process sees; else "".
[[nodiscard]] std::string visible_devices_note();

/// Returns "out of memory (CUDA_ERROR_OUT_OF_MEMORY)".
[[nodiscard]] std::string cuda_error_text(const CudaApi& cuda, CUresult error);

/// Returns a pointer in the type that the driver has for it.
[[nodiscard]] inline CUdeviceptr device_pointer(const void* memory) { return reinterpret_cast<CUdeviceptr>(memory); }

/// Throws Error{System} "what: CUDA's text" for an error.
void check_cuda(const CudaApi& cuda, CUresult error, std::string_view what);

}  // namespace ddp::detail
