#pragma once
// to_nccl: translates element types and reductions to NCCL's. Pure.

#include <optional>

#include "ddp/types.hpp"
#include "worker_lib/src/nccl/abi.hpp"

namespace ddp::detail {

using namespace abi;

/// 16-bit integers, which NCCL does not have, are copied as f16; their reductions are refused before.
[[nodiscard]] constexpr ncclDataType_t to_nccl(DType type) {
    switch (type) {
        case DType::I8: return ncclInt8;
        case DType::Bool:
        case DType::U8: return ncclUint8;
        case DType::I32: return ncclInt32;
        case DType::U32: return ncclUint32;
        case DType::I64: return ncclInt64;
        case DType::U64: return ncclUint64;
        case DType::I16:
        case DType::U16:
        case DType::F16: return ncclFloat16;
        case DType::BF16: return ncclBfloat16;
        case DType::F32: return ncclFloat32;
        case DType::F64: return ncclFloat64;
    }
    return ncclInt8;  // not reached
}

/// Returns nothing for the bitwise reductions, which NCCL does not have. Over a single rank the average becomes the
/// sum, because NCCL's average is unreliable there (PyTorch's FSDP2 avoids it, too).
[[nodiscard]] constexpr std::optional<ncclRedOp_t> to_nccl(ReduceOp op, DType type, int ranks) {
    if (type == DType::Bool && op == ReduceOp::Sum) return ncclMax;      // logical or
    if (type == DType::Bool && op == ReduceOp::Product) return ncclMin;  // logical and
    switch (op) {
        case ReduceOp::Sum: return ncclSum;
        case ReduceOp::Avg: return ranks == 1 ? ncclSum : ncclAvg;
        case ReduceOp::Min: return ncclMin;
        case ReduceOp::Max: return ncclMax;
        case ReduceOp::Product: return ncclProd;
        case ReduceOp::BitAnd:
        case ReduceOp::BitOr:
        case ReduceOp::BitXor: return std::nullopt;
    }
    return std::nullopt;
}

}  // namespace ddp::detail
