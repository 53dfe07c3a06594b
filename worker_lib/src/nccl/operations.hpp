#pragma once
// start: makes the NCCL calls of an operation. The caller is the only thread in the communicator.

#include <string_view>
#include <vector>

#include "worker_lib/src/group/backend.hpp"
#include "worker_lib/src/nccl/api.hpp"
#include "worker_lib/src/operation/transfer.hpp"

namespace ddp::detail {

/// The stream of a group's operations, and this rank in the group.
struct NcclTarget {
    const NcclApi& nccl;
    CUstream stream = nullptr;
    int rank = 0;
    int ranks = 1;
    void* barrier_word = nullptr;  ///< an i32 on the device that stays 0
};

/// Enqueues a checked operation, which is not a replay, on the stream. An operation that moves nothing, on all ranks
/// alike, enqueues nothing. ncclInProgress: a non-blocking communicator is still launching it.
[[nodiscard]] ncclResult_t start(const Operation& operation, const NcclTarget& target, ncclComm_t comm);

/// The same for messages, which begin and end together, so that the order in which ranks list them cannot block them.
/// If NCCL refuses one, none has started.
[[nodiscard]] ncclResult_t start(const std::vector<Transfer>& messages, const NcclTarget& target, ncclComm_t comm);

/// Returns the function of NCCL, or of CUDA, that puts the operation on the stream: "ncclAllReduce".
[[nodiscard]] std::string_view nccl_function(const Operation& operation);

/// The same for messages, all of which start when their group of calls ends.
inline constexpr std::string_view kMessagesFunction = "ncclGroupEnd (messages)";

}  // namespace ddp::detail
