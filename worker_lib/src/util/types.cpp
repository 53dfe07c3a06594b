#include "ddp/types.hpp"

namespace ddp {

std::string_view to_string(DType type) {
    switch (type) {
        case DType::i8: return "i8";
        case DType::u8: return "u8";
        case DType::i32: return "i32";
        case DType::u32: return "u32";
        case DType::i64: return "i64";
        case DType::u64: return "u64";
        case DType::f16: return "f16";
        case DType::bf16: return "bf16";
        case DType::f32: return "f32";
        case DType::f64: return "f64";
    }
    return "unknown type";
}

std::string_view to_string(ReduceOp op) {
    switch (op) {
        case ReduceOp::Sum: return "sum";
        case ReduceOp::Avg: return "avg";
        case ReduceOp::Min: return "min";
        case ReduceOp::Max: return "max";
        case ReduceOp::Product: return "product";
        case ReduceOp::BAnd: return "band";
        case ReduceOp::BOr: return "bor";
        case ReduceOp::BXor: return "bxor";
    }
    return "unknown reduction";
}

std::string_view to_string(Backend backend) {
    switch (backend) {
        case Backend::Auto: return "auto";
        case Backend::Native: return "native";
        case Backend::Nccl: return "nccl";
    }
    return "unknown backend";
}

}  // namespace ddp
