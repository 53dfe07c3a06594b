#include "worker_lib/src/native/one_shot.hpp"

#include <algorithm>
#include <cstring>

#include "worker_lib/src/native/reduce.hpp"

namespace ddp::detail {

namespace {

int own_rank(const Topology& topology) { return topology.local()[static_cast<std::size_t>(topology.own_index)]; }

void copy(const Buffer& to, std::size_t offset, const std::byte* from, std::size_t bytes) {
    if (bytes > 0) std::memcpy(static_cast<std::byte*>(to.data) + offset, from, bytes);
}

/// In rank order and rounded once, as large ones are: the same bits. Every rank adds up everything.
void reduce_all(const Team& team, const Operation& operation, OwnData own) {
    const Node& node = team.node;
    const std::size_t count = operation.buffer.count;
    if (count == 0) return;
    const Reduction& reduction = lookup(operation.buffer.dtype, operation.reduce_op);
    auto& sources = team.scratch.sources;
    sources.clear();
    for (int i = 0; i < node.size(); ++i) sources.push_back(node.data(i));
    if (own == OwnData::kBuffer) sources[static_cast<std::size_t>(node.own_index())] = operation.buffer.data;
    const double scale = operation.reduce_op == ReduceOp::Avg ? 1.0 / node.size() : 1.0;
    void* const result = operation.result().data;
    reduction.reduce_into(sources.data(), sources.size(), count, scale, &result, 1);
}

void gather_all(const Team& team, const Operation& operation) {
    const std::size_t bytes = operation.buffer.bytes();
    for (int i = 0; i < team.node.size(); ++i) {
        const auto part = static_cast<std::size_t>(team.node.rank_at(i)) * bytes;
        copy(operation.result(), part, team.node.data(i), bytes);
    }
}

void take_root_s(const Team& team, const Operation& operation) {
    const auto& local = team.topology.local();
    const auto root = static_cast<int>(std::ranges::find(local, operation.root) - local.begin());
    if (root != team.node.own_index()) copy(operation.buffer, 0, team.node.data(root), operation.buffer.bytes());
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

void finish_one_shot(const Team& team, const Operation& operation, OwnData own) {
    switch (operation.kind) {
        case OpKind::kAllReduce: reduce_all(team, operation, own); break;
        case OpKind::kReduce:
            if (operation.root == own_rank(team.topology)) reduce_all(team, operation, own);
            break;
        case OpKind::kBroadcast: take_root_s(team, operation); break;
        case OpKind::kAllGather: gather_all(team, operation); break;
        default: break;  // a barrier: all have come
    }
}

}  // namespace ddp::detail
