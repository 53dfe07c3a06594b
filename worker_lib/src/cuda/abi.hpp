#pragma once
// The calls of the CUDA driver (libcuda.so.1) that the backend makes, declared here so that no build needs the CUDA
// Toolkit. Names, values and signatures are those of cuda.h in CUDA 12.0 to 13.0 and of
// https://docs.nvidia.com/cuda/cuda-driver-api. tests/unit/worker_lib/nccl/abi_check.cpp compares them with cuda.h
// where that is installed.

#include <cstddef>
#include <cstdint>

// In the global namespace, as in cuda.h, so that a CUstream is one type in all headers.
struct CUctx_st;
struct CUevent_st;
struct CUfunc_st;
struct CUgraphExec_st;
struct CUgraph_st;
struct CUmod_st;
struct CUstream_st;

namespace ddp::abi {

using CUcontext = CUctx_st*;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUevent = CUevent_st*;
using CUfunction = CUfunc_st*;
using CUgraph = CUgraph_st*;
using CUgraphExec = CUgraphExec_st*;
using CUmodule = CUmod_st*;
using CUstream = CUstream_st*;  ///< the runtime's cudaStream_t is the same; null: the legacy default stream

struct CUuuid {
    char bytes[16];
};

// All enumerations have a fixed type, so that values which are not listed here are valid, too.

enum CUresult : unsigned {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_DEVICE_UNAVAILABLE = 46,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_INVALID_HANDLE = 400,
    CUDA_ERROR_NOT_READY = 600,
    CUDA_ERROR_NOT_SUPPORTED = 801,
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
    CUDA_ERROR_STREAM_CAPTURE_ISOLATION = 905,
    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906,
};
enum CUstream_flags : unsigned { CU_STREAM_NON_BLOCKING = 1 };
enum CUevent_flags : unsigned { CU_EVENT_DISABLE_TIMING = 2 };
enum CUstreamCaptureMode : unsigned {
    CU_STREAM_CAPTURE_MODE_GLOBAL = 0,
    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
    CU_STREAM_CAPTURE_MODE_RELAXED = 2,
};
enum CUstreamCaptureStatus : unsigned { CU_STREAM_CAPTURE_STATUS_NONE = 0, CU_STREAM_CAPTURE_STATUS_ACTIVE = 1 };
/// Kernels of a graph keep the priority of the stream on which they were captured. From CUDA 11.7 on.
enum CUgraphInstantiate_flags : unsigned { CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY = 8 };
enum CUmemorytype : unsigned { CU_MEMORYTYPE_DEVICE = 2 };
enum CUdevice_attribute : unsigned {
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
    CU_DEVICE_ATTRIBUTE_PCI_BUS_ID = 33,
    CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID = 34,
    CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID = 50,
};
enum CUjit_option : unsigned { CU_JIT_ERROR_LOG_BUFFER = 5, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6 };
enum CUpointer_attribute : unsigned {
    CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,     ///< a CUmemorytype; 0: CUDA knows no memory there
    CU_POINTER_ATTRIBUTE_IS_MANAGED = 8,      ///< an unsigned
    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,  ///< an int
};

/// The handles of the default streams, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD in cuda.h, are 0 to this.
inline constexpr std::uintptr_t kLastReservedStream = 2;

// These are macros in cuda.h, CU_MEMHOSTALLOC_PORTABLE and so on.
inline constexpr unsigned kHostAllocPortable = 1;
inline constexpr unsigned kHostRegisterPortable = 1;
inline constexpr unsigned kHostRegisterDeviceMap = 2;

struct CudaApi {
    CUresult (*init)(unsigned flags) = nullptr;
    CUresult (*driver_get_version)(int* version) = nullptr;  ///< 12040 is 12.4; needs no init()
    CUresult (*device_get_count)(int* count) = nullptr;
    CUresult (*device_get)(CUdevice* device, int ordinal) = nullptr;
    CUresult (*device_get_attribute)(int* value, CUdevice_attribute attribute, CUdevice device) = nullptr;
    CUresult (*device_get_uuid)(CUuuid* uuid, CUdevice device) = nullptr;  ///< of a MIG slice: its own
    CUresult (*device_primary_ctx_retain)(CUcontext* context, CUdevice device) = nullptr;
    CUresult (*device_primary_ctx_release)(CUdevice device) = nullptr;
    CUresult (*ctx_push_current)(CUcontext context) = nullptr;
    CUresult (*ctx_pop_current)(CUcontext* context) = nullptr;
    CUresult (*ctx_get_stream_priority_range)(int* lowest, int* highest) = nullptr;  ///< highest is the smaller number
    CUresult (*stream_create_with_priority)(CUstream* stream, unsigned flags, int priority) = nullptr;
    CUresult (*stream_destroy)(CUstream stream) = nullptr;
    CUresult (*stream_wait_event)(CUstream stream, CUevent event, unsigned flags) = nullptr;
    CUresult (*stream_is_capturing)(CUstream stream, CUstreamCaptureStatus* status) = nullptr;
    CUresult (*thread_exchange_stream_capture_mode)(CUstreamCaptureMode* mode) = nullptr;
    CUresult (*stream_begin_capture)(CUstream stream, CUstreamCaptureMode mode) = nullptr;
    CUresult (*stream_end_capture)(CUstream stream, CUgraph* graph) = nullptr;
    CUresult (*graph_instantiate)(CUgraphExec* instance, CUgraph graph, unsigned long long flags) = nullptr;
    CUresult (*graph_launch)(CUgraphExec instance, CUstream stream) = nullptr;
    CUresult (*graph_exec_destroy)(CUgraphExec instance) = nullptr;  ///< in flight: it is freed when it has ended
    CUresult (*graph_destroy)(CUgraph graph) = nullptr;
    CUresult (*event_create)(CUevent* event, unsigned flags) = nullptr;
    CUresult (*event_record)(CUevent event, CUstream stream) = nullptr;
    CUresult (*event_query)(CUevent event) = nullptr;
    CUresult (*event_destroy)(CUevent event) = nullptr;
    CUresult (*mem_alloc)(CUdeviceptr* memory, std::size_t bytes) = nullptr;
    CUresult (*mem_free)(CUdeviceptr memory) = nullptr;
    CUresult (*mem_host_alloc)(void** memory, std::size_t bytes, unsigned flags) = nullptr;
    CUresult (*mem_free_host)(void* memory) = nullptr;
    CUresult (*mem_host_register)(void* memory, std::size_t bytes, unsigned flags) = nullptr;
    CUresult (*mem_host_unregister)(void* memory) = nullptr;
    CUresult (*mem_host_get_device_pointer)(CUdeviceptr* pointer, void* memory, unsigned flags) = nullptr;
    CUresult (*memset_d8_async)(CUdeviceptr memory, unsigned char value, std::size_t bytes, CUstream stream) = nullptr;
    CUresult (*memset_d32_async)(CUdeviceptr memory, unsigned value, std::size_t count, CUstream stream) = nullptr;
    CUresult (*memcpy_async)(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) = nullptr;
    CUresult (*pointer_get_attributes)(unsigned count, CUpointer_attribute* attributes, void** values,
                                       CUdeviceptr pointer) = nullptr;
    CUresult (*module_load_data_ex)(CUmodule* module, const void* image, unsigned options, CUjit_option* names,
                                    void** values) = nullptr;
    CUresult (*module_unload)(CUmodule module) = nullptr;
    CUresult (*module_get_function)(CUfunction* function, CUmodule module, const char* name) = nullptr;
    CUresult (*launch_kernel)(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                              unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream,
                              void** arguments, void** extra) = nullptr;
    CUresult (*get_error_name)(CUresult error, const char** text) = nullptr;
    CUresult (*get_error_string)(CUresult error, const char** text) = nullptr;
};

/// ROW(member of CudaApi, function of cuda.h, suffix of the symbol that cuda.h maps it to), for each member.
#define DDP_CUDA_FUNCTIONS(ROW)                                                   \
    ROW(init, cuInit, )                                                           \
    ROW(driver_get_version, cuDriverGetVersion, )                                 \
    ROW(device_get_count, cuDeviceGetCount, )                                     \
    ROW(device_get, cuDeviceGet, )                                                \
    ROW(device_get_attribute, cuDeviceGetAttribute, )                             \
    ROW(device_get_uuid, cuDeviceGetUuid_v2, )                                    \
    ROW(device_primary_ctx_retain, cuDevicePrimaryCtxRetain, )                    \
    ROW(device_primary_ctx_release, cuDevicePrimaryCtxRelease, _v2)               \
    ROW(ctx_push_current, cuCtxPushCurrent, _v2)                                  \
    ROW(ctx_pop_current, cuCtxPopCurrent, _v2)                                    \
    ROW(ctx_get_stream_priority_range, cuCtxGetStreamPriorityRange, )             \
    ROW(stream_create_with_priority, cuStreamCreateWithPriority, )                \
    ROW(stream_destroy, cuStreamDestroy, _v2)                                     \
    ROW(stream_wait_event, cuStreamWaitEvent, )                                   \
    ROW(stream_is_capturing, cuStreamIsCapturing, )                               \
    ROW(thread_exchange_stream_capture_mode, cuThreadExchangeStreamCaptureMode, ) \
    ROW(stream_begin_capture, cuStreamBeginCapture, _v2)                          \
    ROW(stream_end_capture, cuStreamEndCapture, )                                 \
    ROW(graph_instantiate, cuGraphInstantiate, WithFlags)                         \
    ROW(graph_launch, cuGraphLaunch, )                                            \
    ROW(graph_exec_destroy, cuGraphExecDestroy, )                                 \
    ROW(graph_destroy, cuGraphDestroy, )                                          \
    ROW(event_create, cuEventCreate, )                                            \
    ROW(event_record, cuEventRecord, )                                            \
    ROW(event_query, cuEventQuery, )                                              \
    ROW(event_destroy, cuEventDestroy, _v2)                                       \
    ROW(mem_alloc, cuMemAlloc, _v2)                                               \
    ROW(mem_free, cuMemFree, _v2)                                                 \
    ROW(mem_host_alloc, cuMemHostAlloc, )                                         \
    ROW(mem_free_host, cuMemFreeHost, )                                           \
    ROW(mem_host_register, cuMemHostRegister, _v2)                                \
    ROW(mem_host_unregister, cuMemHostUnregister, )                               \
    ROW(mem_host_get_device_pointer, cuMemHostGetDevicePointer, _v2)              \
    ROW(memset_d8_async, cuMemsetD8Async, )                                       \
    ROW(memset_d32_async, cuMemsetD32Async, )                                     \
    ROW(memcpy_async, cuMemcpyAsync, )                                            \
    ROW(pointer_get_attributes, cuPointerGetAttributes, )                         \
    ROW(module_load_data_ex, cuModuleLoadDataEx, )                                \
    ROW(module_unload, cuModuleUnload, )                                          \
    ROW(module_get_function, cuModuleGetFunction, )                               \
    ROW(launch_kernel, cuLaunchKernel, )                                          \
    ROW(get_error_name, cuGetErrorName, )                                         \
    ROW(get_error_string, cuGetErrorString, )

}  // namespace ddp::abi
