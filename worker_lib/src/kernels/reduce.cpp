// Compiled at -O3 in every configuration, because these loops take the time, and once for each instruction set. The
// best one is chosen at run time.
#include "worker_lib/src/kernels/reduce.hpp"

#include <cassert>
#include <cstdint>
#include <type_traits>

// Disabled: instruction sets that are no faster here than the next lower one, or older than 2013. Each one lengthens
// the compilation.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "worker_lib/src/kernels/reduce.cpp"
#include <hwy/foreach_target.h>  // includes this file again, for all instruction sets but one
#include <hwy/highway.h>

#include "worker_lib/src/kernels/reduce_loops-inl.hpp"
#include "worker_lib/src/kernels/reduce_vectors-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace ddp::detail::HWY_NAMESPACE {

template <typename T, typename Op>
const Reduction& table() {
    static constexpr Reduction kTable{reduce<T, Op>, reduce<Accumulator<T>, Op>, finish<T>, reduce_into<T, Op>,
                                      sizeof(Accumulator<T>)};
    return kTable;
}

template <typename T>
const Reduction& lookup_op(ReduceOp op) {
    switch (op) {
        case ReduceOp::Sum:
        case ReduceOp::Avg: return table<T, Sum>();
        case ReduceOp::Min: return table<T, Min>();
        case ReduceOp::Max: return table<T, Max>();
        case ReduceOp::Product: return table<T, Product>();
        case ReduceOp::BitAnd:
        case ReduceOp::BitOr:
        case ReduceOp::BitXor: break;
    }
    if constexpr (std::is_integral_v<T>) {
        if (op == ReduceOp::BitAnd) return table<T, BitAnd>();
        if (op == ReduceOp::BitOr) return table<T, BitOr>();
        return table<T, BitXor>();
    }
    assert(!"bitwise operations on floats are refused before this call");
    return table<T, Sum>();
}

const Reduction& lookup_type(DType type, ReduceOp op) {
    switch (type) {
        case DType::I8: return lookup_op<std::int8_t>(op);
        case DType::U8: return lookup_op<std::uint8_t>(op);
        case DType::I32: return lookup_op<std::int32_t>(op);
        case DType::U32: return lookup_op<std::uint32_t>(op);
        case DType::I64: return lookup_op<std::int64_t>(op);
        case DType::U64: return lookup_op<std::uint64_t>(op);
        case DType::F16: return lookup_op<Half>(op);
        case DType::BF16: return lookup_op<Bfloat16>(op);
        case DType::F32: return lookup_op<float>(op);
        case DType::F64: return lookup_op<double>(op);
    }
    assert(!"unknown element types are refused before this call");
    return lookup_op<float>(op);
}

}  // namespace ddp::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ddp::detail {

HWY_EXPORT(lookup_type);

const Reduction& lookup(DType type, ReduceOp op) { return HWY_DYNAMIC_DISPATCH(lookup_type)(type, op); }

}  // namespace ddp::detail
#endif
