#include "worker_lib/src/native/collectives.hpp"

#include <cstring>

namespace ddp::detail {

// memcpy refuses null pointers even for nothing, and a buffer of no elements may be null.

void OwnBuffer::copy_out_to(std::byte* slot, std::size_t first, std::size_t size) const {
    if (size > 0) std::memcpy(slot, data + first, size);
}

void OwnBuffer::copy_in_from(const std::byte* slot, std::size_t first, std::size_t size) const {
    if (size > 0) std::memcpy(data + first, slot, size);
}

void barrier(const Team& team, const Operation& operation) {
    team.node.meet(operation, {});
    if (team.nodes() == 1) return;
    if (team.is_leader()) {
        std::vector<OutMessage> out;
        std::vector<InMessage> in;
        for (std::size_t node = 0; node < team.nodes(); ++node) {
            if (static_cast<int>(node) == team.topology.own_node) continue;
            const int peer = team.topology.counterpart(static_cast<int>(node));
            out.push_back({peer, {}});
            in.push_back({peer, {}});
        }
        team.links->exchange(operation, 0, out, in);
    }
    team.node.barrier(operation);
}

void run_collective(const Team& team, const Operation& operation, const OwnBuffers& own, Step step) {
    switch (operation.kind) {
        case OpKind::kAllReduce:
        case OpKind::kReduce: all_reduce(team, operation, own, step); break;
        case OpKind::kReduceScatter: reduce_scatter(team, operation, own); break;
        case OpKind::kAllGather:
        case OpKind::kAllGatherV:
        case OpKind::kGather:
        case OpKind::kGatherV:
        case OpKind::kScatter:
        case OpKind::kScatterV:
        case OpKind::kAllToAll:
        case OpKind::kAllToAllV: move_blocks(team, operation, own); break;
        case OpKind::kBroadcast: broadcast(team, operation, own.input); break;
        case OpKind::kBarrier: barrier(team, operation); break;
    }
}

}  // namespace ddp::detail
