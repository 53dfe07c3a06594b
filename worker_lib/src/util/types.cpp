#include "ddp/types.hpp"

#include <string>

#include "ddp/buffer.hpp"
#include "ddp/error.hpp"

namespace ddp {

void detail::check_elements(DType found, DType wanted, Device device) {
    if (device != Device::Cpu)
        throw Error(ErrorCode::InvalidArgument, "Buffer::as: the elements are device memory. Copy them to the host");
    if (found == wanted) return;
    throw Error(ErrorCode::InvalidArgument, "Buffer::as: the elements are " + std::string(to_string(found)) + ", not " +
                                                std::string(to_string(wanted)) + ". Ask for their type (dtype)");
}

std::string_view to_string(DType type) {
    switch (type) {
        case DType::Bool: return "bool";
        case DType::I8: return "i8";
        case DType::U8: return "u8";
        case DType::I16: return "i16";
        case DType::U16: return "u16";
        case DType::I32: return "i32";
        case DType::U32: return "u32";
        case DType::I64: return "i64";
        case DType::U64: return "u64";
        case DType::F16: return "f16";
        case DType::BF16: return "bf16";
        case DType::F32: return "f32";
        case DType::F64: return "f64";
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
        case ReduceOp::BitAnd: return "band";
        case ReduceOp::BitOr: return "bor";
        case ReduceOp::BitXor: return "bxor";
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
