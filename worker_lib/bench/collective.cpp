#include "worker_lib/bench/collective.hpp"

#include <vector>

namespace ddp::bench {

std::string_view name_of(Collective collective) {
    switch (collective) {
        case Collective::kAllReduce: return "all_reduce";
        case Collective::kBroadcast: return "broadcast";
        case Collective::kReduce: return "reduce";
        case Collective::kAllGather: return "all_gather";
        case Collective::kReduceScatter: return "reduce_scatter";
        case Collective::kGather: return "gather";
        case Collective::kScatter: return "scatter";
        case Collective::kAllToAll: return "all_to_all";
        case Collective::kSendRecv: return "sendrecv";
        case Collective::kAllGatherV: return "all_gather_v";
        case Collective::kGatherV: return "gather_v";
        case Collective::kScatterV: return "scatter_v";
        case Collective::kAllToAllV: return "all_to_all_v";
        case Collective::kBarrier: return "barrier";
    }
    return "?";
}

std::size_t Call::offset(int r) const {
    const auto n = static_cast<std::size_t>(ranks);
    const auto before = static_cast<std::size_t>(r);
    if (!has_different_parts(collective)) return count / n * before;
    return r == ranks ? count : count / (n * (n + 1) / 2) * (before * (before + 1) / 2);
}

std::size_t Call::part(int r) const { return offset(r + 1) - offset(r); }

std::size_t Call::in_count() const {
    if (gathers(collective)) return part();
    const bool root_has_all = collective == Collective::kScatter || collective == Collective::kScatterV;
    return root_has_all && rank != root ? 0 : count;
}

std::size_t Call::out_count() const {
    if (splits(collective)) return part();
    const bool root_gets_all =
        collective == Collective::kReduce || collective == Collective::kGather || collective == Collective::kGatherV;
    return root_gets_all && rank != root ? 0 : count;
}

double bus_factor(Collective collective, int ranks) {
    const double n = ranks;
    switch (collective) {
        case Collective::kAllReduce: return 2 * (n - 1) / n;
        case Collective::kBroadcast:
        case Collective::kReduce:
        case Collective::kSendRecv: return 1;
        case Collective::kBarrier: return 0;
        default: return (n - 1) / n;
    }
}

namespace {

Buffer at(void* memory, std::size_t offset, std::size_t count, const Call& call, Device device) {
    return {static_cast<std::byte*>(memory) + offset * size_of(call.dtype), count, call.dtype, device};
}

/// Returns the sizes of all ranks' parts, in elements.
std::vector<std::size_t> parts(const Call& call) {
    std::vector<std::size_t> counts;
    for (int r = 0; r < call.ranks; ++r) counts.push_back(call.part(r));
    return counts;
}

/// Each rank sends part k to the k-th one after it, so that all send as much as they receive.
Work start_all_to_all_v(ProcessGroup& group, const Call& call, const Buffers& buffers, const OpOptions& options) {
    std::vector<std::size_t> send(static_cast<std::size_t>(call.ranks));
    std::vector<std::size_t> receive(send.size());
    for (int r = 0; r < call.ranks; ++r) {
        send[static_cast<std::size_t>(r)] = call.part((r - call.rank + call.ranks) % call.ranks);
        receive[static_cast<std::size_t>(r)] = call.part((call.rank - r + call.ranks) % call.ranks);
    }
    return group.all_to_all_v(buffers.in, send, buffers.out, receive, options);
}

}  // namespace

Buffers buffers_of(const Call& call, void* input, void* output, Device device) {
    const std::size_t in = call.in_count();
    const std::size_t out = call.out_count();
    if (!call.in_place) return {at(input, 0, in, call, device), at(output, 0, out, call, device)};
    // If one side is a part of the other, it starts at the rank's own offset.
    const std::size_t own = call.offset(call.rank);
    return {at(output, gathers(call.collective) && out > 0 ? own : 0, in, call, device),
            at(output, splits(call.collective) && in > 0 ? own : 0, out, call, device)};
}

Work start(ProcessGroup& group, const Call& call, const Buffers& buffers, Stream stream) {
    const auto& [in, out] = buffers;
    const OpOptions options{.stream = stream};
    switch (call.collective) {
        case Collective::kAllReduce:
            return call.in_place ? group.all_reduce(in, call.op, options) : group.all_reduce(in, out, call.op, options);
        case Collective::kBroadcast: return group.broadcast(in, call.root, options);
        case Collective::kReduce: return group.reduce(in, out, call.op, call.root, options);
        case Collective::kAllGather: return group.all_gather(in, out, options);
        case Collective::kReduceScatter: return group.reduce_scatter(in, out, call.op, options);
        case Collective::kGather: return group.gather(in, out, call.root, options);
        case Collective::kScatter: return group.scatter(in, out, call.root, options);
        case Collective::kAllToAll: return group.all_to_all(in, out, options);
        case Collective::kSendRecv: {
            TransferBatch batch = group.batch();
            batch.send(in, call.next()).recv(out, call.previous());
            return batch.start(options);
        }
        case Collective::kAllGatherV: return group.all_gather_v(in, out, parts(call), options);
        case Collective::kGatherV: return group.gather_v(in, out, parts(call), call.root, options);
        case Collective::kScatterV: return group.scatter_v(in, out, parts(call), call.root, options);
        case Collective::kAllToAllV: return start_all_to_all_v(group, call, buffers, options);
        case Collective::kBarrier: return group.barrier();
    }
    return {};
}

}  // namespace ddp::bench
