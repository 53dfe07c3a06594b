#pragma once
// NCCL and the CUDA runtime as two tables of function pointers. They are filled by dlopen (loader.cpp), so that one
// binary runs with and without a GPU, or by a fake (tests/unit/worker_lib/fake_nccl.hpp). The headers are needed at
// compile time only.

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstddef>
#include <string>

#include "common/error.hpp"

namespace ddp::detail {

/// The calls of nccl.h that the backend makes, each with its own signature there.
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

/// The same for cuda_runtime_api.h, and some of cuda.h: only the driver tells, and restores, that a thread has no
/// device yet; and the runtime's words on a pointer differ between CUDA 12 and 13. Their signatures are those of both
/// CUDA 12 and 13.
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
    // Of the driver; null where there is none, and no device then.
    CUresult (*get_context)(CUcontext* context) = nullptr;
    CUresult (*set_context)(CUcontext context) = nullptr;
    CUresult (*pointer_attribute)(void* value, CUpointer_attribute attribute, CUdeviceptr pointer) = nullptr;
};

struct GpuApi {
    NcclApi nccl;
    CudaApi cuda;
    int nccl_version = 0;  ///< as NCCL codes it: 22809 is 2.28.9
};

/// Before it, ncclCommInitRankConfig and ncclCommFinalize lack what the backend relies on.
inline constexpr int kOldestNccl = 21800;

/// "2.28.9" for 22809.
[[nodiscard]] std::string nccl_version_text(int version);

/// Opens libnccl.so.2 (or what DDPRUN_NCCL_LIBRARY names) and the CUDA runtime. They stay open until the process ends:
/// both have threads and exit handlers of their own. The error says which library or function is missing, or that NCCL
/// is too old.
[[nodiscard]] ddprun::Result<GpuApi> load_gpu_api();

/// CUDA devices here; an error with CUDA's own words when there is none, of which the CUDA runtime forgets then: a
/// program without GPUs has not asked.
[[nodiscard]] ddprun::Result<int> count_devices(const CudaApi& cuda);

}  // namespace ddp::detail
