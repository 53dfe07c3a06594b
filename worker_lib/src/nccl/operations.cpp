#include "worker_lib/src/nccl/operations.hpp"

#include <algorithm>

#include "worker_lib/src/nccl/messages.hpp"
#include "worker_lib/src/nccl/types.hpp"

namespace ddp::detail {

namespace {

ncclResult_t start_reduction(const Operation& operation, const NcclQueue& queue, ncclComm_t comm) {
    const Buffer& in = operation.buffer;
    const Buffer& out = operation.result();
    const ncclDataType_t type = to_nccl(operation.part().dtype);
    const ncclRedOp_t op = *to_nccl(operation.reduce_op, operation.part().dtype, queue.ranks);
    switch (operation.kind) {
        case OpKind::kReduce:
            return queue.nccl.reduce(in.data, out.data, in.count, type, op, operation.root, comm, queue.stream);
        case OpKind::kReduceScatter:
            return queue.nccl.reduce_scatter(in.data, out.data, out.count, type, op, comm, queue.stream);
        default: return queue.nccl.all_reduce(in.data, out.data, in.count, type, op, comm, queue.stream);
    }
}

ncclResult_t start(const Transfer& message, const NcclQueue& queue, ncclComm_t comm) {
    const auto& [sends, buffer, peer, tag] = message;
    const ncclDataType_t type = to_nccl(buffer.dtype);
    return sends ? queue.nccl.send(buffer.data, buffer.count, type, peer, comm, queue.stream)
                 : queue.nccl.recv(buffer.data, buffer.count, type, peer, comm, queue.stream);
}

bool is_empty(const Transfer& message) { return message.buffer.count == 0; }

}  // namespace

ncclResult_t start(const Operation& operation, const NcclQueue& queue, ncclComm_t comm) {
    if (operation.kind == OpKind::kBarrier) {
        void* const word = queue.barrier_word;
        return queue.nccl.all_reduce(word, word, 1, ncclInt32, ncclSum, comm, queue.stream);
    }
    if (is_messages(operation.kind)) return start(messages_of(operation, queue.rank, queue.ranks), queue, comm);
    const Buffer& in = operation.buffer;
    if (operation.part().count == 0) return ncclSuccess;
    if (reduces(operation.kind)) return start_reduction(operation, queue, comm);
    const ncclDataType_t type = to_nccl(in.dtype);
    if (operation.kind == OpKind::kAllGather)
        return queue.nccl.all_gather(in.data, operation.output->data, in.count, type, comm, queue.stream);
    return queue.nccl.broadcast(in.data, in.data, in.count, type, operation.root, comm, queue.stream);
}

ncclResult_t start(const std::vector<Transfer>& messages, const NcclQueue& queue, ncclComm_t comm) {
    if (std::ranges::all_of(messages, is_empty)) return ncclSuccess;
    // A single message is a group, too: outside of a group NCCL may return ncclSuccess before its kernel is on the
    // stream (https://github.com/NVIDIA/nccl/issues/1495).
    if (const ncclResult_t result = queue.nccl.group_start(); result != ncclSuccess) return result;
    ncclResult_t refused = ncclSuccess;
    for (const Transfer& message : messages) {
        if (is_empty(message)) continue;
        refused = start(message, queue, comm);
        if (refused == ncclInProgress) refused = ncclSuccess;  // the state of the communicator, not of this call
        if (refused != ncclSuccess) break;
    }
    // Also after a refusal: the group would stay open on this thread and take in all later calls.
    const ncclResult_t ended = queue.nccl.group_end();
    return refused != ncclSuccess ? refused : ended;
}

}  // namespace ddp::detail
