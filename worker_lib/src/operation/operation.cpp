#include "worker_lib/src/operation/operation.hpp"

#include <fmt/format.h>

#include <numeric>

#include "worker_lib/src/operation/transfer.hpp"

namespace ddp::detail {

std::string_view to_string(OpKind kind) {
    switch (kind) {
        case OpKind::kAllReduce: return "all_reduce";
        case OpKind::kBroadcast: return "broadcast";
        case OpKind::kBarrier: return "barrier";
        case OpKind::kReduce: return "reduce";
        case OpKind::kReduceScatter: return "reduce_scatter";
        case OpKind::kAllGather: return "all_gather";
        case OpKind::kAllGatherV: return "all_gather_v";
        case OpKind::kGather: return "gather";
        case OpKind::kGatherV: return "gather_v";
        case OpKind::kScatter: return "scatter";
        case OpKind::kScatterV: return "scatter_v";
        case OpKind::kAllToAll: return "all_to_all";
        case OpKind::kAllToAllV: return "all_to_all_v";
        case OpKind::kReplay: return "replay";
    }
    return "unknown operation";
}

std::size_t Operation::compared_count() const {
    if (!has_buffer(kind) || kind == OpKind::kAllToAllV) return 0;
    return counts.empty() ? part().count : std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

std::string describe(const Operation& operation) {
    std::string text = fmt::format("#{} {}", operation.seq, to_string(operation.kind));
    if (reduces(operation.kind)) text += fmt::format(" {}", ddp::to_string(operation.reduce_op));
    if (has_buffer(operation.kind)) {
        text += fmt::format(" {}", ddp::to_string(operation.part().dtype));
        if (operation.kind != OpKind::kAllToAllV) text += fmt::format("[{}]", operation.compared_count());
    }
    if (!shares_counts(operation.kind) && operation.counts_hash != 0)
        text += fmt::format(" of step {}", operation.counts_hash);
    if (has_root(operation.kind)) text += fmt::format(" root {}", operation.root);
    if (!operation.label.empty()) text += fmt::format(" '{}'", shown_label(operation.label));
    return text;
}

}  // namespace ddp::detail
