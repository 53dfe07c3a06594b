#pragma once
// The calls of the CUDA driver (libcuda.so.1) that the backend makes, declared here so that no build needs the CUDA
// Toolkit. Names, values and signatures are those of cuda.h in CUDA 12.0 to 13.0 and of
// https://docs.nvidia.com/cuda/cuda-driver-api. tests/unit/worker_lib/nccl/abi_check.cpp compares them with cuda.h
// where that is installed.

#include <cstddef>

// In the global namespace, as in cuda.h, so that a CUstream is one type in all headers.
struct CUctx_st;
struct CUevent_st;
struct CUstream_st;

namespace ddp::abi {

using CUcontext = CUctx_st*;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUevent = CUevent_st*;
using CUstream = CUstream_st*;  ///< the runtime's cudaStream_t is the same; null: the legacy default stream

// All enumerations have a fixed type, so that values which are not listed here are valid, too.

enum CUresult : unsigned {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_DEVICE_UNAVAILABLE = 46,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_INVALID_HANDLE = 400,
    CUDA_ERROR_NOT_READY = 600,
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
    CUDA_ERROR_STREAM_CAPTURE_ISOLATION = 905,
    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906,
};
enum CUstream_flags : unsigned { CU_STREAM_NON_BLOCKING = 1 };
enum CUevent_flags : unsigned { CU_EVENT_DISABLE_TIMING = 2 };
enum CUstreamCaptureMode : unsigned { CU_STREAM_CAPTURE_MODE_GLOBAL = 0, CU_STREAM_CAPTURE_MODE_RELAXED = 2 };
enum CUstreamCaptureStatus : unsigned { CU_STREAM_CAPTURE_STATUS_NONE = 0, CU_STREAM_CAPTURE_STATUS_ACTIVE = 1 };
enum CUmemorytype : unsigned { CU_MEMORYTYPE_DEVICE = 2 };
enum CUpointer_attribute : unsigned {
    CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,     ///< a CUmemorytype; 0: CUDA knows no memory there
    CU_POINTER_ATTRIBUTE_IS_MANAGED = 8,      ///< an unsigned
    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,  ///< an int
};

struct CudaApi {
    CUresult (*init)(unsigned flags) = nullptr;
    CUresult (*driver_get_version)(int* version) = nullptr;  ///< 12040 is 12.4; needs no init()
    CUresult (*device_get_count)(int* count) = nullptr;
    CUresult (*device_get)(CUdevice* device, int ordinal) = nullptr;
    CUresult (*device_primary_ctx_retain)(CUcontext* context, CUdevice device) = nullptr;
    CUresult (*device_primary_ctx_release)(CUdevice device) = nullptr;
    CUresult (*ctx_push_current)(CUcontext context) = nullptr;
    CUresult (*ctx_pop_current)(CUcontext* context) = nullptr;
    CUresult (*stream_create_with_priority)(CUstream* stream, unsigned flags, int priority) = nullptr;
    CUresult (*stream_destroy)(CUstream stream) = nullptr;
    CUresult (*stream_wait_event)(CUstream stream, CUevent event, unsigned flags) = nullptr;
    CUresult (*stream_is_capturing)(CUstream stream, CUstreamCaptureStatus* status) = nullptr;
    CUresult (*thread_exchange_stream_capture_mode)(CUstreamCaptureMode* mode) = nullptr;
    CUresult (*event_create)(CUevent* event, unsigned flags) = nullptr;
    CUresult (*event_record)(CUevent event, CUstream stream) = nullptr;
    CUresult (*event_query)(CUevent event) = nullptr;
    CUresult (*event_destroy)(CUevent event) = nullptr;
    CUresult (*mem_alloc)(CUdeviceptr* memory, std::size_t bytes) = nullptr;
    CUresult (*mem_free)(CUdeviceptr memory) = nullptr;
    CUresult (*memset_d8_async)(CUdeviceptr memory, unsigned char value, std::size_t bytes, CUstream stream) = nullptr;
    CUresult (*memcpy_async)(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) = nullptr;
    CUresult (*pointer_get_attributes)(unsigned count, CUpointer_attribute* attributes, void** values,
                                       CUdeviceptr pointer) = nullptr;
    CUresult (*get_error_name)(CUresult error, const char** text) = nullptr;
    CUresult (*get_error_string)(CUresult error, const char** text) = nullptr;
};

/// ROW(member of CudaApi, function of cuda.h, suffix of the symbol that cuda.h maps it to), for each member.
#define DDP_CUDA_FUNCTIONS(ROW)                                                   \
    ROW(init, cuInit, )                                                           \
    ROW(driver_get_version, cuDriverGetVersion, )                                 \
    ROW(device_get_count, cuDeviceGetCount, )                                     \
    ROW(device_get, cuDeviceGet, )                                                \
    ROW(device_primary_ctx_retain, cuDevicePrimaryCtxRetain, )                    \
    ROW(device_primary_ctx_release, cuDevicePrimaryCtxRelease, _v2)               \
    ROW(ctx_push_current, cuCtxPushCurrent, _v2)                                  \
    ROW(ctx_pop_current, cuCtxPopCurrent, _v2)                                    \
    ROW(stream_create_with_priority, cuStreamCreateWithPriority, )                \
    ROW(stream_destroy, cuStreamDestroy, _v2)                                     \
    ROW(stream_wait_event, cuStreamWaitEvent, )                                   \
    ROW(stream_is_capturing, cuStreamIsCapturing, )                               \
    ROW(thread_exchange_stream_capture_mode, cuThreadExchangeStreamCaptureMode, ) \
    ROW(event_create, cuEventCreate, )                                            \
    ROW(event_record, cuEventRecord, )                                            \
    ROW(event_query, cuEventQuery, )                                              \
    ROW(event_destroy, cuEventDestroy, _v2)                                       \
    ROW(mem_alloc, cuMemAlloc, _v2)                                               \
    ROW(mem_free, cuMemFree, _v2)                                                 \
    ROW(memset_d8_async, cuMemsetD8Async, )                                       \
    ROW(memcpy_async, cuMemcpyAsync, )                                            \
    ROW(pointer_get_attributes, cuPointerGetAttributes, )                         \
    ROW(get_error_name, cuGetErrorName, )                                         \
    ROW(get_error_string, cuGetErrorString, )

}  // namespace ddp::abi
