#pragma once
// Calls of NCCL that put work on a stream, as values, and their execution by a group of the native backend. Execution
// runs on the thread of a stream.

#include <atomic>
#include <cstddef>
#include <string>
#include <vector>

#include "ddp/process_group.hpp"
#include "worker_lib/src/nccl/abi.hpp"

namespace ddp::fake_nccl {

using namespace abi;

enum class CallKind { kAllReduce, kBroadcast, kReduce, kAllGather, kReduceScatter, kSend, kReceive };

/// The arguments of one call. Counts are those of nccl.h: elements of a rank's own part.
struct Call {
    CallKind kind = CallKind::kAllReduce;
    const void* in = nullptr;
    void* out = nullptr;
    std::size_t count = 0;
    ncclDataType_t type = ncclInt8;
    ncclRedOp_t op = ncclSum;
    int root = 0;  ///< of a message: the peer
};

/// Memory that a call uses.
struct Range {
    const void* begin = nullptr;
    std::size_t bytes = 0;
    bool written = false;
};

[[nodiscard]] inline bool is_message(const Call& call) {
    return call.kind == CallKind::kSend || call.kind == CallKind::kReceive;
}
/// Returns the function's name in nccl.h.
[[nodiscard]] const char* name_of(CallKind kind);
/// Returns why NCCL refuses the arguments; empty: it does not.
[[nodiscard]] std::string complaint(const Call& call, int ranks);
/// Returns the memory that rank `rank` of `ranks` reads and writes.
[[nodiscard]] std::vector<Range> memory_of(const Call& call, int rank, int ranks);

/// Carries out the calls of one group of calls, which begin and end together. Blocks until the peers have done their
/// part. Throws ddp::Error: the group has failed, or is aborted.
void execute(ProcessGroup& group, const std::vector<Call>& calls);

}  // namespace ddp::fake_nccl
