#include "worker_lib/src/native/collectives/one_shot.hpp"

#include <algorithm>
#include <cstring>

#include "worker_lib/src/kernels/reduce.hpp"

namespace ddp::detail {

namespace {

int own_rank(const Topology& topology) { return topology.local()[static_cast<std::size_t>(topology.own_index)]; }

void copy(const Buffer& to, std::size_t offset, const std::byte* from, std::size_t bytes) {
    if (bytes > 0) std::memcpy(static_cast<std::byte*>(to.data) + offset, from, bytes);
}

/// Reduces the data of all ranks, in rank order and rounded once, so that the bits equal those of large operations.
void reduce_all(const CollectiveContext& context, const Operation& operation, OwnData own) {
    const Node& node = context.node;
    const std::size_t count = operation.buffer.count;
    if (count == 0) return;
    const Reduction& reduction = lookup(operation.buffer.dtype, operation.reduce_op);
    auto& sources = context.scratch.sources;
    sources.clear();
    for (int i = 0; i < node.ranks.size(); ++i) sources.push_back(node.meetings.data(i));
    if (own == OwnData::kBuffer) sources[static_cast<std::size_t>(node.ranks.own_index())] = operation.buffer.data;
    const double scale = operation.reduce_op == ReduceOp::Avg ? 1.0 / node.ranks.size() : 1.0;
    void* const result = operation.result().data;
    reduction.reduce_into(sources.data(), sources.size(), count, scale, &result, 1);
}

void gather_all(const CollectiveContext& context, const Operation& operation) {
    const std::size_t bytes = operation.buffer.bytes();
    for (int i = 0; i < context.node.ranks.size(); ++i) {
        const auto part = static_cast<std::size_t>(context.node.ranks.rank_at(i)) * bytes;
        copy(operation.result(), part, context.node.meetings.data(i), bytes);
    }
}

void copy_from_root(const CollectiveContext& context, const Operation& operation) {
    const auto& local = context.topology.local();
    const auto root = static_cast<int>(std::ranges::find(local, operation.root) - local.begin());
    if (root != context.node.ranks.own_index())
        copy(operation.buffer, 0, context.node.meetings.data(root), operation.buffer.bytes());
}

}  // namespace

bool is_one_shot(const Topology& topology, const Operation& operation) {
    if (topology.nodes.size() != 1) return false;
    switch (operation.kind) {
        case OpKind::kBarrier: return true;
        case OpKind::kAllReduce:
        case OpKind::kReduce:
        case OpKind::kBroadcast:
        case OpKind::kAllGather: return operation.buffer.bytes() <= kInlineBytes;
        default: return false;
    }
}

std::span<const std::byte> one_shot_data(const Topology& topology, const Operation& operation) {
    if (operation.kind == OpKind::kBroadcast && operation.root != own_rank(topology)) return {};
    return {static_cast<const std::byte*>(operation.buffer.data), operation.buffer.bytes()};
}

void finish_one_shot(const CollectiveContext& context, const Operation& operation, OwnData own) {
    switch (operation.kind) {
        case OpKind::kAllReduce: reduce_all(context, operation, own); break;
        case OpKind::kReduce:
            if (operation.root == own_rank(context.topology)) reduce_all(context, operation, own);
            break;
        case OpKind::kBroadcast: copy_from_root(context, operation); break;
        case OpKind::kAllGather: gather_all(context, operation); break;
        default: break;  // a barrier: all ranks have arrived
    }
}

}  // namespace ddp::detail
