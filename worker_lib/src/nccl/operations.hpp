#pragma once
// Which NCCL calls an operation becomes. Whoever calls holds the communicator alone.

#include <vector>

#include "worker_lib/src/backend.hpp"
#include "worker_lib/src/nccl/nccl_api.hpp"
#include "worker_lib/src/transfer.hpp"

namespace ddp::detail {

/// Where a group's operations run.
struct NcclQueue {
    const NcclApi& nccl;
    cudaStream_t stream = nullptr;
    int rank = 0;
    int ranks = 1;
    void* barrier_word = nullptr;  ///< an i32 on the device that stays 0
};

/// Puts the operation, which has been checked, behind what is on the stream. Nothing is put there for one that moves
/// nothing, which is so on all ranks alike. ncclInProgress: a non-blocking communicator is at it.
[[nodiscard]] ncclResult_t start(const Operation& operation, const NcclQueue& queue, ncclComm_t comm);

/// The same for messages, all of which begin together and end together: the order in which ranks list them, or wait
/// for each other, cannot block them. If NCCL refuses one of them none has begun.
[[nodiscard]] ncclResult_t start(const std::vector<Transfer>& messages, const NcclQueue& queue, ncclComm_t comm);

}  // namespace ddp::detail
