// Compiled at -O3 in every configuration, because these loops take the time, and once for each instruction set. The
// best one is chosen at run time.
#include "worker_lib/src/kernels/reduce.hpp"

#include <cassert>
#include <cstdint>
#include <type_traits>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

// Disabled: instruction sets that are no faster here than the next lower one, or older than 2013, or that
// instruction_sets() does not look for. Each one lengthens the compilation.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
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

/// Returns the operation of bytes that are 0 or 1 which gives such a byte. The sum is the logical or, as in C++
/// (`bool += bool`), and the product the logical and.
constexpr ReduceOp logical(ReduceOp op) {
    if (op == ReduceOp::Sum) return ReduceOp::BitOr;
    return op == ReduceOp::Product ? ReduceOp::BitAnd : op;
}

const Reduction& lookup_type(DType type, ReduceOp op) {
    switch (type) {
        case DType::Bool: return lookup_op<std::uint8_t>(logical(op));
        case DType::I8: return lookup_op<std::int8_t>(op);
        case DType::U8: return lookup_op<std::uint8_t>(op);
        case DType::I16: return lookup_op<std::int16_t>(op);
        case DType::U16: return lookup_op<std::uint16_t>(op);
        case DType::I32: return lookup_op<std::int32_t>(op);
        case DType::U32: return lookup_op<std::uint32_t>(op);
        case DType::I64: return lookup_op<std::int64_t>(op);
        case DType::U64: return lookup_op<std::uint64_t>(op);
        case DType::F16: return lookup_op<Float16>(op);
        case DType::BF16: return lookup_op<BFloat16>(op);
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

// Chosen here and not by Highway's dynamic dispatch, whose code is in a shared library: a trainer would need it.
namespace {

#if HWY_ARCH_X86
[[maybe_unused]] bool has_avx2() {
    // Older compilers have no name for F16C. "avx2" includes that the kernel saves the registers.
    unsigned int eax = 0, ebx = 0, ecx = 0, edx = 0;
    const bool has_f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
    return has_f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
}

[[maybe_unused]] bool has_avx3() {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd");
}
#endif

}  // namespace

std::vector<InstructionSet> instruction_sets() {
    std::vector<InstructionSet> sets;
#if (HWY_TARGETS & HWY_AVX3) && HWY_STATIC_TARGET != HWY_AVX3
    if (has_avx3()) sets.push_back({"AVX3", N_AVX3::lookup_type});
#endif
#if (HWY_TARGETS & HWY_AVX2) && HWY_STATIC_TARGET != HWY_AVX2
    if (has_avx2()) sets.push_back({"AVX2", N_AVX2::lookup_type});
#endif
    sets.push_back({hwy::TargetName(HWY_STATIC_TARGET), HWY_STATIC_DISPATCH(lookup_type)});
    return sets;
}

const Reduction& lookup(DType type, ReduceOp op) {
    static const auto best = instruction_sets().front().lookup;
    return best(type, op);
}

}  // namespace ddp::detail
#endif
