// Compares the declarations of worker_lib/src/cuda and worker_lib/src/nccl with cuda.h and nccl.h. Nothing runs: a
// difference does not compile.

#include <cuda.h>
#include <nccl.h>

#include <string_view>
#include <type_traits>

#include "worker_lib/src/cuda/abi.hpp"
#include "worker_lib/src/nccl/abi.hpp"

namespace ddp::abi {
namespace {

/// Returns whether two types are passed alike: equal types, and enumerations or structures of equal size. Their values
/// and members are compared below.
template <typename Ours, typename Theirs>
constexpr bool passed_alike() {
    if constexpr (std::is_same_v<Ours, Theirs>) {
        return true;
    } else if constexpr (std::is_enum_v<Ours> || std::is_class_v<Ours>) {
        return std::is_enum_v<Ours> == std::is_enum_v<Theirs> && std::is_class_v<Ours> == std::is_class_v<Theirs> &&
               sizeof(Ours) == sizeof(Theirs) && alignof(Ours) == alignof(Theirs);
    } else {
        return false;
    }
}
template <typename Ours, typename Theirs>
struct Alike : std::bool_constant<passed_alike<Ours, Theirs>()> {};
template <typename Ours, typename Theirs>
struct Alike<Ours*, Theirs*> : std::bool_constant<passed_alike<Ours, Theirs>()> {};
template <>
struct Alike<ncclConfig_t*, ::ncclConfig_t*> : std::true_type {};  // NCCL's may be longer
template <typename OurResult, typename... Ours, typename TheirResult, typename... Theirs>
requires(sizeof...(Ours) == sizeof...(Theirs)) struct Alike<OurResult (*)(Ours...), TheirResult (*)(Theirs...)>
    : std::conjunction<Alike<OurResult, TheirResult>, Alike<Ours, Theirs>...> {
};

#define DDP_TEXT(word) #word
#define DDP_EXPANDED_TEXT(word) DDP_TEXT(word)

#define DDP_CHECK(member, function, suffix)                                                                   \
    static_assert(Alike<decltype(CudaApi::member), decltype(&::function)>::value, "signature of " #function); \
    static_assert(std::string_view(DDP_EXPANDED_TEXT(function)) == #function #suffix, "symbol of " #function);
DDP_CUDA_FUNCTIONS(DDP_CHECK)
#undef DDP_CHECK
#define DDP_CHECK(member, function) \
    static_assert(Alike<decltype(NcclApi::member), decltype(&::function)>::value, "signature of " #function);
DDP_NCCL_FUNCTIONS(DDP_CHECK)
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 23, 4)
DDP_NCCL_FUNCTIONS_OF_2_23_4(DDP_CHECK)
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 7)
DDP_NCCL_FUNCTIONS_OF_2_28_7(DDP_CHECK)
#endif
#undef DDP_CHECK

static_assert(std::is_same_v<CUcontext, ::CUcontext> && std::is_same_v<CUevent, ::CUevent> &&
              std::is_same_v<CUfunction, ::CUfunction> && std::is_same_v<CUgraph, ::CUgraph> &&
              std::is_same_v<CUgraphExec, ::CUgraphExec> && std::is_same_v<CUmodule, ::CUmodule> &&
              std::is_same_v<CUstream, ::CUstream> && std::is_same_v<CUstream, ::cudaStream_t> &&
              std::is_same_v<CUdevice, ::CUdevice> && std::is_same_v<CUdeviceptr, ::CUdeviceptr> &&
              std::is_same_v<ncclComm_t, ::ncclComm_t>);

#define DDP_CHECK(name) static_assert(static_cast<long long>(name) == static_cast<long long>(::name), #name);
DDP_CHECK(CUDA_SUCCESS)
DDP_CHECK(CUDA_ERROR_OUT_OF_MEMORY)
DDP_CHECK(CUDA_ERROR_DEVICE_UNAVAILABLE)
DDP_CHECK(CUDA_ERROR_NO_DEVICE)
DDP_CHECK(CUDA_ERROR_INVALID_CONTEXT)
DDP_CHECK(CUDA_ERROR_INVALID_HANDLE)
DDP_CHECK(CUDA_ERROR_NOT_READY)
DDP_CHECK(CUDA_ERROR_NOT_SUPPORTED)
DDP_CHECK(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
DDP_CHECK(CUDA_ERROR_STREAM_CAPTURE_ISOLATION)
DDP_CHECK(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
DDP_CHECK(CU_STREAM_NON_BLOCKING)
DDP_CHECK(CU_EVENT_DISABLE_TIMING)
DDP_CHECK(CU_STREAM_CAPTURE_MODE_GLOBAL)
DDP_CHECK(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
DDP_CHECK(CU_STREAM_CAPTURE_MODE_RELAXED)
DDP_CHECK(CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY)
DDP_CHECK(CU_STREAM_CAPTURE_STATUS_NONE)
DDP_CHECK(CU_STREAM_CAPTURE_STATUS_ACTIVE)
DDP_CHECK(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
DDP_CHECK(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)
DDP_CHECK(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)
DDP_CHECK(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)
DDP_CHECK(CU_JIT_ERROR_LOG_BUFFER)
DDP_CHECK(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
DDP_CHECK(CU_MEMORYTYPE_DEVICE)
DDP_CHECK(CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
DDP_CHECK(CU_POINTER_ATTRIBUTE_IS_MANAGED)
DDP_CHECK(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
static_assert(sizeof(CUuuid::bytes) == sizeof(::CUuuid::bytes));
static_assert(kHostAllocPortable == CU_MEMHOSTALLOC_PORTABLE && kHostRegisterPortable == CU_MEMHOSTREGISTER_PORTABLE &&
              kHostRegisterDeviceMap == CU_MEMHOSTREGISTER_DEVICEMAP);
DDP_CHECK(ncclSuccess)
DDP_CHECK(ncclUnhandledCudaError)
DDP_CHECK(ncclSystemError)
DDP_CHECK(ncclInternalError)
DDP_CHECK(ncclInvalidArgument)
DDP_CHECK(ncclInvalidUsage)
DDP_CHECK(ncclRemoteError)
DDP_CHECK(ncclInProgress)
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 30, 0)
DDP_CHECK(ncclTimeout)
#endif
DDP_CHECK(ncclInt8)
DDP_CHECK(ncclUint8)
DDP_CHECK(ncclInt32)
DDP_CHECK(ncclUint32)
DDP_CHECK(ncclInt64)
DDP_CHECK(ncclUint64)
DDP_CHECK(ncclFloat16)
DDP_CHECK(ncclFloat32)
DDP_CHECK(ncclFloat64)
DDP_CHECK(ncclBfloat16)
DDP_CHECK(ncclSum)
DDP_CHECK(ncclProd)
DDP_CHECK(ncclMax)
DDP_CHECK(ncclMin)
DDP_CHECK(ncclAvg)
#undef DDP_CHECK

constexpr ncclConfig_t kOurs{};
constexpr ::ncclConfig_t kTheirs = NCCL_CONFIG_INITIALIZER;
static_assert(sizeof kOurs <= sizeof kTheirs);
static_assert(kOurs.magic == kTheirs.magic && kOurs.blocking == kTheirs.blocking &&
              kOurs.cgaClusterSize == kTheirs.cgaClusterSize && kOurs.minCTAs == kTheirs.minCTAs &&
              kOurs.maxCTAs == kTheirs.maxCTAs && kOurs.netName == kTheirs.netName &&
              kOurs.splitShare == kTheirs.splitShare);
static_assert(kOurs.version == NCCL_VERSION(2, 18, 0) && kOurs.version <= kTheirs.version);
#define DDP_CHECK(member)                                                                       \
    static_assert(offsetof(ncclConfig_t, member) == offsetof(::ncclConfig_t, member), #member); \
    static_assert(std::is_same_v<decltype(ncclConfig_t::member), decltype(::ncclConfig_t::member)>, #member);
DDP_CHECK(size)
DDP_CHECK(magic)
DDP_CHECK(version)
DDP_CHECK(blocking)
DDP_CHECK(cgaClusterSize)
DDP_CHECK(minCTAs)
DDP_CHECK(maxCTAs)
DDP_CHECK(netName)
DDP_CHECK(splitShare)
#undef DDP_CHECK

}  // namespace
}  // namespace ddp::abi
