#include "worker_lib/bench/collective.hpp"

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
    }
    return "?";
}

std::size_t Call::in_count() const {
    switch (collective) {
        case Collective::kAllGather:
        case Collective::kGather: return part();
        case Collective::kScatter: return rank == root ? count : 0;
        default: return count;
    }
}

std::size_t Call::out_count() const {
    switch (collective) {
        case Collective::kReduceScatter:
        case Collective::kScatter: return part();
        case Collective::kReduce:
        case Collective::kGather: return rank == root ? count : 0;
        default: return count;
    }
}

double bus_factor(Collective collective, int ranks) {
    const double n = ranks;
    switch (collective) {
        case Collective::kAllReduce: return 2 * (n - 1) / n;
        case Collective::kBroadcast:
        case Collective::kReduce:
        case Collective::kSendRecv: return 1;
        default: return (n - 1) / n;
    }
}

namespace {

Buffer at(void* memory, std::size_t offset, std::size_t count, const Call& call, Device device) {
    return {static_cast<std::byte*>(memory) + offset * size_of(call.dtype), count, call.dtype, device};
}

}  // namespace

Buffers place(const Call& call, void* input, void* output, Device device) {
    const std::size_t in = call.in_count();
    const std::size_t out = call.out_count();
    if (!call.in_place) return {at(input, 0, in, call, device), at(output, 0, out, call, device)};
    // Where one side is a part of the other, it lies at the rank's own place.
    const std::size_t own = static_cast<std::size_t>(call.rank) * call.part();
    const bool gathers = call.collective == Collective::kAllGather || call.collective == Collective::kGather;
    const bool splits = call.collective == Collective::kReduceScatter || call.collective == Collective::kScatter;
    return {at(output, gathers && out > 0 ? own : 0, in, call, device),
            at(output, splits && in > 0 ? own : 0, out, call, device)};
}

Work start(ProcessGroup& group, const Call& call, const Buffers& buffers) {
    const auto& [in, out] = buffers;
    switch (call.collective) {
        case Collective::kAllReduce:
            return call.in_place ? group.all_reduce(in, call.op) : group.all_reduce(in, out, call.op);
        case Collective::kBroadcast: return group.broadcast(in, call.root);
        case Collective::kReduce: return group.reduce(in, out, call.root, call.op);
        case Collective::kAllGather: return group.all_gather(in, out);
        case Collective::kReduceScatter: return group.reduce_scatter(in, out, call.op);
        case Collective::kGather: return group.gather(in, out, call.root);
        case Collective::kScatter: return group.scatter(in, out, call.root);
        case Collective::kAllToAll: return group.all_to_all(in, out);
        case Collective::kSendRecv: {
            Batch batch = group.batch();
            batch.send(in, call.next()).recv(out, call.previous());
            return batch.start();
        }
    }
    return {};
}

}  // namespace ddp::bench
