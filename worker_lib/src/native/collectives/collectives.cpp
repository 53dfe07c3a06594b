#include "worker_lib/src/native/collectives/collectives.hpp"

#include <cstring>

namespace ddp::detail {

// memcpy requires non-null pointers even for no bytes, and a buffer without elements may be null.

void OwnBuffer::copy_out_to(std::byte* slot, std::size_t first, std::size_t size) const {
    if (size > 0) std::memcpy(slot, data + first, size);
}

void OwnBuffer::copy_in_from(const std::byte* slot, std::size_t first, std::size_t size) const {
    if (size > 0) std::memcpy(data + first, slot, size);
}

/// Between nodes the leaders exchange empty messages pairwise, so that each node compares its call with every other.
void barrier(const CollectiveContext& context, const Operation& operation) {
    context.node.meetings.meet(operation, {});
    if (context.nodes() == 1) return;
    if (context.is_leader()) {
        std::vector<OutMessage> out;
        std::vector<InMessage> in;
        for (std::size_t node = 0; node < context.nodes(); ++node) {
            if (static_cast<int>(node) == context.topology.own_node) continue;
            const int peer = context.topology.counterpart(static_cast<int>(node));
            out.push_back({peer, {}});
            in.push_back({peer, {}});
        }
        context.links->exchange(operation, 0, out, in);
    }
    context.node.barrier.arrive_and_wait(operation);
}

void run_collective(const CollectiveContext& context, const Operation& operation, const OwnBuffers& own, Step step) {
    switch (operation.kind) {
        case OpKind::kAllReduce:
        case OpKind::kReduce: all_reduce(context, operation, own, step); break;
        case OpKind::kReduceScatter: reduce_scatter(context, operation, own); break;
        case OpKind::kAllGather:
        case OpKind::kAllGatherV:
        case OpKind::kGather:
        case OpKind::kGatherV:
        case OpKind::kScatter:
        case OpKind::kScatterV:
        case OpKind::kAllToAll:
        case OpKind::kAllToAllV: move_blocks(context, operation, own); break;
        case OpKind::kBroadcast: broadcast(context, operation, own.input); break;
        case OpKind::kBarrier: barrier(context, operation); break;
        case OpKind::kReplay: break;  // of a device's group only
    }
}

}  // namespace ddp::detail
