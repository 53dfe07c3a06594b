#include "tests/fake_gpu/nccl/call.hpp"

#include <fmt/format.h>

#include <cstring>
#include <optional>
#include <span>

namespace ddp::fake_nccl {
namespace {

/// Tags of the native backend: data, and the receiver's answer that it takes them.
constexpr int kData = 0;
constexpr int kAnswer = 1;

std::optional<DType> dtype_of_nccl(ncclDataType_t type) {
    switch (type) {
        case ncclInt8: return DType::I8;
        case ncclUint8: return DType::U8;
        case ncclInt32: return DType::I32;
        case ncclUint32: return DType::U32;
        case ncclInt64: return DType::I64;
        case ncclUint64: return DType::U64;
        case ncclFloat16: return DType::F16;
        case ncclFloat32: return DType::F32;
        case ncclFloat64: return DType::F64;
        case ncclBfloat16: return DType::BF16;
    }
    return std::nullopt;
}

std::optional<ReduceOp> op_of_nccl(ncclRedOp_t op) {
    switch (op) {
        case ncclSum: return ReduceOp::Sum;
        case ncclProd: return ReduceOp::Product;
        case ncclMax: return ReduceOp::Max;
        case ncclMin: return ReduceOp::Min;
        case ncclAvg: return ReduceOp::Avg;
    }
    return std::nullopt;
}

bool reduces(CallKind kind) {
    return kind == CallKind::kAllReduce || kind == CallKind::kReduce || kind == CallKind::kReduceScatter;
}

bool has_root(const Call& call) {
    return is_message(call) || call.kind == CallKind::kBroadcast || call.kind == CallKind::kReduce;
}

Work start(ProcessGroup& group, const Call& call) {
    const DType type = *dtype_of_nccl(call.type);
    const auto ranks = static_cast<std::size_t>(group.size());
    const auto in = [&](std::size_t parts) { return ConstBuffer(call.in, call.count * parts, type); };
    const auto out = [&](std::size_t parts) { return Buffer(call.out, call.count * parts, type); };
    switch (call.kind) {
        case CallKind::kAllReduce: return group.all_reduce(in(1), out(1), *op_of_nccl(call.op));
        case CallKind::kReduce: return group.reduce(in(1), out(1), *op_of_nccl(call.op), call.root);
        case CallKind::kAllGather: return group.all_gather(in(1), out(ranks));
        case CallKind::kReduceScatter: return group.reduce_scatter(in(ranks), out(1), *op_of_nccl(call.op));
        default: break;
    }
    if (group.rank() == call.root && call.in != call.out) std::memcpy(call.out, call.in, out(1).bytes());
    return group.broadcast(out(1), call.root);
}

}  // namespace

const char* name_of(CallKind kind) {
    switch (kind) {
        case CallKind::kAllReduce: return "ncclAllReduce";
        case CallKind::kBroadcast: return "ncclBroadcast";
        case CallKind::kReduce: return "ncclReduce";
        case CallKind::kAllGather: return "ncclAllGather";
        case CallKind::kReduceScatter: return "ncclReduceScatter";
        case CallKind::kSend: return "ncclSend";
        case CallKind::kReceive: return "ncclRecv";
    }
    return "?";
}

std::string complaint(const Call& call, int ranks) {
    const char* const name = name_of(call.kind);
    const auto type = dtype_of_nccl(call.type);
    if (!type) return fmt::format("{}: unknown type {}", name, static_cast<unsigned>(call.type));
    if (reduces(call.kind)) {
        if (!op_of_nccl(call.op)) return fmt::format("{}: unknown reduction {}", name, static_cast<unsigned>(call.op));
        if (call.op == ncclAvg && !is_float(*type)) return fmt::format("{}: an average of integers", name);
    }
    if (has_root(call) && (call.root < 0 || call.root >= ranks))
        return fmt::format("{}: there is no rank {} among {}", name, call.root, ranks);
    return {};
}

std::vector<Range> memory_of(const Call& call, int rank, int ranks) {
    const std::size_t part = call.count * size_of(*dtype_of_nccl(call.type));
    const std::size_t whole = part * static_cast<std::size_t>(ranks);
    const bool is_root = rank == call.root;
    switch (call.kind) {
        case CallKind::kAllGather: return {{call.in, part}, {call.out, whole, true}};
        case CallKind::kReduceScatter: return {{call.in, whole}, {call.out, part, true}};
        case CallKind::kSend: return {{call.in, part}};
        case CallKind::kReceive: return {{call.out, part, true}};
        case CallKind::kBroadcast:
            if (!is_root) return {{call.out, part, true}};
            break;
        case CallKind::kReduce:
            if (!is_root) return {{call.in, part}};
            break;
        case CallKind::kAllReduce: break;
    }
    return {{call.in, part}, {call.out, part, true}};
}

void execute(ProcessGroup& group, const std::vector<Call>& calls) {
    TransferBatch batch = group.batch();
    std::byte answer{};  // its value does not matter
    std::vector<std::byte> answers(calls.size());
    for (std::size_t i = 0; i < calls.size(); ++i) {
        const Call& call = calls[i];
        if (!is_message(call) || call.count == 0) continue;
        const DType type = *dtype_of_nccl(call.type);
        const bool to_itself = call.root == group.rank();
        // The native backend stores small messages, and then a send ends without its receive. Here it must not.
        if (call.kind == CallKind::kSend) {
            batch.send(ConstBuffer(call.in, call.count, type), call.root, kData);
            if (!to_itself) batch.recv(Buffer(&answers[i], 1, DType::U8), call.root, kAnswer);
        } else {
            batch.recv(Buffer(call.out, call.count, type), call.root, kData);
            if (!to_itself) batch.send(ConstBuffer(&answer, 1, DType::U8), call.root, kAnswer);
        }
    }
    Work messages = batch.start();
    for (const Call& call : calls)
        if (!is_message(call) && call.count > 0) start(group, call).wait();
    messages.wait();
}

}  // namespace ddp::fake_nccl
