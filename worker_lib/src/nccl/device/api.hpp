#pragma once
// NCCL and the CUDA runtime as two tables of function pointers, with one member per function of those libraries. They
// are filled by dlopen (api.cpp), so that one binary runs with and without a GPU, or by a test's fake (fake_nccl.hpp).
// The headers are needed at compile time only.

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstddef>
#include <string>

#include "common/error.hpp"

namespace ddp::detail {

/// The calls of nccl.h that the backend makes, with the signatures of nccl.h.
struct NcclApi {
    ncclResult_t (*get_version)(int* version) = nullptr;
    ncclResult_t (*get_unique_id)(ncclUniqueId* id) = nullptr;
    ncclResult_t (*comm_init_rank_config)(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                          ncclConfig_t* config) = nullptr;
    ncclResult_t (*comm_get_async_error)(ncclComm_t comm, ncclResult_t* error) = nullptr;
    ncclResult_t (*comm_abort)(ncclComm_t comm) = nullptr;
    ncclResult_t (*comm_finalize)(ncclComm_t comm) = nullptr;
    ncclResult_t (*comm_destroy)(ncclComm_t comm) = nullptr;
    ncclResult_t (*all_reduce)(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) = nullptr;
    ncclResult_t (*broadcast)(const void* in, void* out, std::size_t count, ncclDataType_t type, int root,
                              ncclComm_t comm, cudaStream_t stream) = nullptr;
    ncclResult_t (*reduce)(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                           ncclComm_t comm, cudaStream_t stream) = nullptr;
    ncclResult_t (*all_gather)(const void* in, void* out, std::size_t in_count, ncclDataType_t type, ncclComm_t comm,
                               cudaStream_t stream) = nullptr;
    ncclResult_t (*reduce_scatter)(const void* in, void* out, std::size_t out_count, ncclDataType_t type,
                                   ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) = nullptr;
    ncclResult_t (*send)(const void* in, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                         cudaStream_t stream) = nullptr;
    ncclResult_t (*recv)(void* out, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                         cudaStream_t stream) = nullptr;
    ncclResult_t (*group_start)() = nullptr;
    ncclResult_t (*group_end)() = nullptr;
    const char* (*get_error_string)(ncclResult_t result) = nullptr;
    const char* (*get_last_error)(ncclComm_t comm) = nullptr;
};

/// The same for cuda_runtime_api.h and some of cuda.h. Only the driver can report and restore that a thread has no
/// device yet, and the runtime describes pointers differently in CUDA 12 and 13. The signatures are those of both
/// versions.
struct CudaApi {
    cudaError_t (*get_device_count)(int* count) = nullptr;
    cudaError_t (*get_device)(int* device) = nullptr;
    cudaError_t (*set_device)(int device) = nullptr;
    cudaError_t (*stream_create_with_flags)(cudaStream_t* stream, unsigned flags) = nullptr;
    cudaError_t (*stream_destroy)(cudaStream_t stream) = nullptr;
    cudaError_t (*stream_wait_event)(cudaStream_t stream, cudaEvent_t event, unsigned flags) = nullptr;
    cudaError_t (*event_create_with_flags)(cudaEvent_t* event, unsigned flags) = nullptr;
    cudaError_t (*event_record)(cudaEvent_t event, cudaStream_t stream) = nullptr;
    cudaError_t (*event_query)(cudaEvent_t event) = nullptr;
    cudaError_t (*event_destroy)(cudaEvent_t event) = nullptr;
    cudaError_t (*malloc)(void** memory, std::size_t bytes) = nullptr;
    cudaError_t (*free)(void* memory) = nullptr;
    cudaError_t (*memset_async)(void* memory, int value, std::size_t bytes, cudaStream_t stream) = nullptr;
    cudaError_t (*memcpy_async)(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                                cudaStream_t stream) = nullptr;
    cudaError_t (*exchange_capture_mode)(cudaStreamCaptureMode* mode) = nullptr;
    cudaError_t (*stream_is_capturing)(cudaStream_t stream, cudaStreamCaptureStatus* status) = nullptr;
    cudaError_t (*get_last_error)() = nullptr;
    const char* (*get_error_string)(cudaError_t error) = nullptr;
    // Functions of the driver. Null if there is no driver, and so no device.
    CUresult (*get_context)(CUcontext* context) = nullptr;
    CUresult (*set_context)(CUcontext context) = nullptr;
    CUresult (*pointer_attribute)(void* value, CUpointer_attribute attribute, CUdeviceptr pointer) = nullptr;
};

/// Both tables, as load_gpu_api() fills them.
struct GpuApi {
    NcclApi nccl;
    CudaApi cuda;
    int nccl_version = 0;  ///< as NCCL codes it: 22809 is 2.28.9
};

/// The oldest NCCL whose ncclCommInitRankConfig and ncclCommFinalize behave as the backend requires.
inline constexpr int kOldestNccl = 21800;

/// Returns "2.28.9" for 22809.
[[nodiscard]] std::string nccl_version_text(int version);

/// Opens libnccl.so.2 (or the file in DDPRUN_NCCL_LIBRARY) and the CUDA runtime. They stay open until the process ends,
/// because both have threads and exit handlers of their own. The error names the library or function that is missing,
/// or the version of NCCL that is too old.
[[nodiscard]] ddprun::Result<GpuApi> load_gpu_api();

/// Returns the number of CUDA devices here; an error with CUDA's text when there is none. The error is cleared in the
/// CUDA runtime, so that a program without GPUs does not find it there.
[[nodiscard]] ddprun::Result<int> count_devices(const CudaApi& cuda);

}  // namespace ddp::detail
