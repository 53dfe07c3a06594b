#include "worker_lib/src/nccl/operations.hpp"

#include <algorithm>

#include "worker_lib/src/nccl/messages.hpp"
#include "worker_lib/src/nccl/types.hpp"

namespace ddp::detail {

namespace {

ncclResult_t start_reduction(const Operation& operation, const NcclTarget& target, ncclComm_t comm) {
    const Buffer& in = operation.buffer;
    const Buffer& out = operation.result();
    const ncclDataType_t type = to_nccl(operation.part().dtype);
    const ncclRedOp_t op = *to_nccl(operation.reduce_op, operation.part().dtype, target.ranks);
    switch (operation.kind) {
        case OpKind::kReduce:
            return target.nccl.reduce(in.data, out.data, in.count, type, op, operation.root, comm, target.stream);
        case OpKind::kReduceScatter:
            return target.nccl.reduce_scatter(in.data, out.data, out.count, type, op, comm, target.stream);
        default: return target.nccl.all_reduce(in.data, out.data, in.count, type, op, comm, target.stream);
    }
}

ncclResult_t start(const Transfer& message, const NcclTarget& target, ncclComm_t comm) {
    const auto& [sends, buffer, peer, tag] = message;
    const ncclDataType_t type = to_nccl(buffer.dtype);
    return sends ? target.nccl.send(buffer.data, buffer.count, type, peer, comm, target.stream)
                 : target.nccl.recv(buffer.data, buffer.count, type, peer, comm, target.stream);
}

bool is_empty(const Transfer& message) { return message.buffer.count == 0; }

}  // namespace

ncclResult_t start(const Operation& operation, const NcclTarget& target, ncclComm_t comm) {
    if (operation.kind == OpKind::kBarrier) {
        void* const word = target.barrier_word;
        return target.nccl.all_reduce(word, word, 1, ncclInt32, ncclSum, comm, target.stream);
    }
    if (is_messages(operation.kind)) return start(messages_of(operation, target.rank, target.ranks), target, comm);
    const Buffer& in = operation.buffer;
    if (operation.part().count == 0) return ncclSuccess;
    if (reduces(operation.kind)) return start_reduction(operation, target, comm);
    const ncclDataType_t type = to_nccl(in.dtype);
    if (operation.kind == OpKind::kAllGather)
        return target.nccl.all_gather(in.data, operation.output->data, in.count, type, comm, target.stream);
    return target.nccl.broadcast(in.data, in.data, in.count, type, operation.root, comm, target.stream);
}

ncclResult_t start(const std::vector<Transfer>& messages, const NcclTarget& target, ncclComm_t comm) {
    if (std::ranges::all_of(messages, is_empty)) return ncclSuccess;
    // A single message is a group, too: outside of a group NCCL may return ncclSuccess before its kernel is on the
    // stream (https://github.com/NVIDIA/nccl/issues/1495).
    if (const ncclResult_t result = target.nccl.group_start(); result != ncclSuccess) return result;
    ncclResult_t refused = ncclSuccess;
    for (const Transfer& message : messages) {
        if (is_empty(message)) continue;
        refused = start(message, target, comm);
        if (refused == ncclInProgress) refused = ncclSuccess;  // the state of the communicator, not of this call
        if (refused != ncclSuccess) break;
    }
    // Also after a refusal: the group would stay open on this thread and take in all later calls.
    const ncclResult_t ended = target.nccl.group_end();
    return refused != ncclSuccess ? refused : ended;
}

std::string_view nccl_function(const Operation& operation) {
    switch (operation.kind) {
        case OpKind::kAllReduce:
        case OpKind::kBarrier: return "ncclAllReduce";
        case OpKind::kBroadcast: return "ncclBroadcast";
        case OpKind::kReduce: return "ncclReduce";
        case OpKind::kReduceScatter: return "ncclReduceScatter";
        case OpKind::kAllGather: return "ncclAllGather";
        case OpKind::kReplay: return "cuGraphLaunch";
        default: return kMessagesFunction;
    }
}

}  // namespace ddp::detail
