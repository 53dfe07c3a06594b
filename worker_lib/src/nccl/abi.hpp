#pragma once
// The calls of NCCL (libnccl.so.2) that the backend makes, declared here so that no build needs nccl.h. Names, values
// and signatures are those of nccl.h in NCCL 2.18 to 2.32 and of
// https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/api.html. tests/unit/worker_lib/nccl/abi_check.cpp compares
// them with nccl.h where that is installed.

#include <climits>
#include <cstddef>

#include "worker_lib/src/cuda/abi.hpp"

struct ncclComm;  // in the global namespace, as in nccl.h

namespace ddp::abi {

/// The oldest NCCL whose ncclCommInitRankConfig and ncclCommFinalize behave as the backend requires, as ncclGetVersion
/// codes it.
inline constexpr int kOldestNccl = 21800;

using ncclComm_t = ncclComm*;

struct ncclUniqueId {
    char internal[128];
};

// All enumerations have a fixed type, so that values which are not listed here are valid, too.

enum ncclResult_t : unsigned {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1,
    ncclSystemError = 2,
    ncclInternalError = 3,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclRemoteError = 6,
    ncclInProgress = 7,
    ncclTimeout = 8,  ///< from NCCL 2.30 on
};
enum ncclDataType_t : unsigned {
    ncclInt8 = 0,
    ncclUint8 = 1,
    ncclInt32 = 2,
    ncclUint32 = 3,
    ncclInt64 = 4,
    ncclUint64 = 5,
    ncclFloat16 = 6,
    ncclFloat32 = 7,
    ncclFloat64 = 8,
    ncclBfloat16 = 9,
};
enum ncclRedOp_t : unsigned { ncclSum = 0, ncclProd = 1, ncclMax = 2, ncclMin = 3, ncclAvg = 4 };

/// ncclConfig_t as it was in NCCL 2.18. NCCL reads `size` bytes of it, and takes its own defaults for everything that
/// is newer than `version`; so one binary is valid for all later versions.
struct ncclConfig_t {
    std::size_t size = sizeof(ncclConfig_t);
    unsigned magic = 0xcafebeef;
    unsigned version = kOldestNccl;
    int blocking = INT_MIN;  ///< INT_MIN, as in the other members: undefined
    int cgaClusterSize = INT_MIN;
    int minCTAs = INT_MIN;
    int maxCTAs = INT_MIN;
    const char* netName = nullptr;
    int splitShare = INT_MIN;
};

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
                               ncclComm_t comm, CUstream stream) = nullptr;
    ncclResult_t (*broadcast)(const void* in, void* out, std::size_t count, ncclDataType_t type, int root,
                              ncclComm_t comm, CUstream stream) = nullptr;
    ncclResult_t (*reduce)(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                           ncclComm_t comm, CUstream stream) = nullptr;
    ncclResult_t (*all_gather)(const void* in, void* out, std::size_t in_count, ncclDataType_t type, ncclComm_t comm,
                               CUstream stream) = nullptr;
    ncclResult_t (*reduce_scatter)(const void* in, void* out, std::size_t out_count, ncclDataType_t type,
                                   ncclRedOp_t op, ncclComm_t comm, CUstream stream) = nullptr;
    ncclResult_t (*send)(const void* in, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                         CUstream stream) = nullptr;
    ncclResult_t (*recv)(void* out, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                         CUstream stream) = nullptr;
    ncclResult_t (*group_start)() = nullptr;
    ncclResult_t (*group_end)() = nullptr;
    const char* (*get_error_string)(ncclResult_t result) = nullptr;
    const char* (*get_last_error)(ncclComm_t comm) = nullptr;
    // Null in older versions of NCCL.
    ncclResult_t (*comm_init_rank_scalable)(ncclComm_t* comm, int ranks, int rank, int id_count, ncclUniqueId* ids,
                                            ncclConfig_t* config) = nullptr;
    ncclResult_t (*comm_revoke)(ncclComm_t comm, int flags) = nullptr;
};

/// ROW(member of NcclApi, function of nccl.h), for each member that every NCCL has.
#define DDP_NCCL_FUNCTIONS(ROW)                        \
    ROW(get_version, ncclGetVersion)                   \
    ROW(get_unique_id, ncclGetUniqueId)                \
    ROW(comm_init_rank_config, ncclCommInitRankConfig) \
    ROW(comm_get_async_error, ncclCommGetAsyncError)   \
    ROW(comm_abort, ncclCommAbort)                     \
    ROW(comm_finalize, ncclCommFinalize)               \
    ROW(comm_destroy, ncclCommDestroy)                 \
    ROW(all_reduce, ncclAllReduce)                     \
    ROW(broadcast, ncclBroadcast)                      \
    ROW(reduce, ncclReduce)                            \
    ROW(all_gather, ncclAllGather)                     \
    ROW(reduce_scatter, ncclReduceScatter)             \
    ROW(send, ncclSend)                                \
    ROW(recv, ncclRecv)                                \
    ROW(group_start, ncclGroupStart)                   \
    ROW(group_end, ncclGroupEnd)                       \
    ROW(get_error_string, ncclGetErrorString)          \
    ROW(get_last_error, ncclGetLastError)
/// The same for the others, by the version that brought them.
#define DDP_NCCL_FUNCTIONS_OF_2_23_4(ROW) ROW(comm_init_rank_scalable, ncclCommInitRankScalable)
#define DDP_NCCL_FUNCTIONS_OF_2_28_7(ROW) ROW(comm_revoke, ncclCommRevoke)
#define DDP_NCCL_OPTIONAL_FUNCTIONS(ROW) DDP_NCCL_FUNCTIONS_OF_2_23_4(ROW) DDP_NCCL_FUNCTIONS_OF_2_28_7(ROW)

}  // namespace ddp::abi
