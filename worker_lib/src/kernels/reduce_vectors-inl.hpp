// The arithmetic of reductions of floats in vector registers: one pass over all sources and outputs. Included once for
// each instruction set, like reduce_loops-inl.hpp. The results have the same bits, except for those of a NaN.
#if defined(DDP_REDUCE_VECTORS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef DDP_REDUCE_VECTORS_INL_HPP
#undef DDP_REDUCE_VECTORS_INL_HPP
#else
#define DDP_REDUCE_VECTORS_INL_HPP
#endif

#include "worker_lib/src/kernels/reduce_loops-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace ddp::detail::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Converts elements to vectors of accumulators and back. kUsed: faster than plain loops on this instruction set.
template <typename T>
struct Vectors {
    static constexpr bool kUsed = std::is_floating_point_v<T> && HWY_TARGET != HWY_SCALAR;
    using Tag = hn::ScalableTag<T>;
    using Vector = hn::Vec<Tag>;
    static HWY_INLINE Vector load(Tag tag, const T* from) { return hn::LoadU(tag, from); }
    static HWY_INLINE void store(Tag tag, Vector values, T* to) { hn::StoreU(values, tag, to); }
};

#if HWY_TARGET != HWY_SCALAR
template <>
struct Vectors<BFloat16> {
    static constexpr bool kUsed = true;
    using Tag = hn::ScalableTag<float>;
    using Vector = hn::Vec<Tag>;
    static HWY_INLINE Vector load(Tag tag, const BFloat16* from) {
        const hn::Rebind<std::uint16_t, Tag> narrow;
        const hn::RebindToUnsigned<Tag> wide;
        const auto bits = hn::LoadU(narrow, reinterpret_cast<const std::uint16_t*>(from));
        return hn::BitCast(tag, hn::ShiftLeft<16>(hn::PromoteTo(wide, bits)));
    }
    static HWY_INLINE void store(Tag, Vector values, BFloat16* to) {
        const hn::RebindToUnsigned<Tag> wide;
        const hn::Rebind<std::uint16_t, Tag> narrow;
        const auto bits = hn::BitCast(wide, values);
        const auto upper = hn::ShiftRight<16>(bits);
        const auto bias = hn::Add(hn::Set(wide, 0x7fffu), hn::And(upper, hn::Set(wide, 1u)));  // ties to even
        const auto rounded = hn::ShiftRight<16>(hn::Add(bits, bias));
        const auto nan = hn::RebindMask(wide, hn::IsNaN(values));
        const auto result = hn::IfThenElse(nan, hn::Or(upper, hn::Set(wide, 0x40u)), rounded);
        hn::StoreU(hn::TruncateTo(narrow, result), narrow, reinterpret_cast<std::uint16_t*>(to));
    }
};
#endif

// Defined only if the machine has instructions for f16: Highway's own conversion neither keeps infinities nor rounds.
#if (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2) || (HWY_ARCH_ARM_A64 && HWY_TARGET == HWY_NEON)
template <>
struct Vectors<Float16> {
    static constexpr bool kUsed = true;
    using Tag = hn::ScalableTag<float>;
    using Vector = hn::Vec<Tag>;
    static HWY_INLINE Vector load(Tag tag, const Float16* from) {
        const hn::Rebind<hwy::float16_t, Tag> narrow;
        return hn::PromoteTo(tag, hn::LoadU(narrow, reinterpret_cast<const hwy::float16_t*>(from)));
    }
    static HWY_INLINE void store(Tag, Vector values, Float16* to) {
        const hn::Rebind<hwy::float16_t, Tag> narrow;
        hn::StoreU(hn::DemoteTo(narrow, values), narrow, reinterpret_cast<hwy::float16_t*>(to));
    }
};
#endif

// The same semantics as the plain loops.
template <typename V>
HWY_INLINE V apply(Sum, V a, V b) {
    return hn::Add(a, b);
}
template <typename V>
HWY_INLINE V apply(Product, V a, V b) {
    return hn::Mul(a, b);
}
template <typename V>
HWY_INLINE V apply(Min, V a, V b) {
    return hn::IfThenElse(hn::Or(hn::Lt(b, a), hn::IsNaN(b)), b, a);
}
template <typename V>
HWY_INLINE V apply(Max, V a, V b) {
    return hn::IfThenElse(hn::Or(hn::Gt(b, a), hn::IsNaN(b)), b, a);
}

/// Reduces as many elements as fill whole groups of four vectors. Returns their number.
template <typename T, typename Op>
std::size_t reduce_vectors(const void* const* sources, std::size_t source_count, std::size_t count, double scale,
                           void* const* outputs, std::size_t output_count) {
    using V = Vectors<T>;
    const typename V::Tag tag;
    const std::size_t lanes = hn::Lanes(tag);
    const auto factor = hn::Set(tag, static_cast<Accumulator<T>>(scale));
    std::size_t i = 0;
    for (; i + 4 * lanes <= count; i += 4 * lanes) {
        const T* from = static_cast<const T*>(sources[0]) + i;
        auto a = V::load(tag, from);
        auto b = V::load(tag, from + lanes);
        auto c = V::load(tag, from + 2 * lanes);
        auto d = V::load(tag, from + 3 * lanes);
        for (std::size_t s = 1; s < source_count; ++s) {
            from = static_cast<const T*>(sources[s]) + i;
            a = apply(Op(), a, V::load(tag, from));
            b = apply(Op(), b, V::load(tag, from + lanes));
            c = apply(Op(), c, V::load(tag, from + 2 * lanes));
            d = apply(Op(), d, V::load(tag, from + 3 * lanes));
        }
        if (scale != 1) {
            a = hn::Mul(a, factor);
            b = hn::Mul(b, factor);
            c = hn::Mul(c, factor);
            d = hn::Mul(d, factor);
        }
        for (std::size_t o = 0; o < output_count; ++o) {
            T* const to = static_cast<T*>(outputs[o]) + i;
            V::store(tag, a, to);
            V::store(tag, b, to + lanes);
            V::store(tag, c, to + 2 * lanes);
            V::store(tag, d, to + 3 * lanes);
        }
    }
    return i;
}

/// Adds up two sources into two outputs, the case of two ranks on a node. Fewer instructions and only two vectors at a
/// time leave the processor more cache lines in flight.
template <typename T>
std::size_t reduce_pair(const void* const* sources, std::size_t count, double scale, void* const* outputs) {
    using V = Vectors<T>;
    const typename V::Tag tag;
    const std::size_t lanes = hn::Lanes(tag);
    const auto factor = hn::Set(tag, static_cast<T>(scale));
    const T* const one = static_cast<const T*>(sources[0]);
    const T* const two = static_cast<const T*>(sources[1]);
    T* const first = static_cast<T*>(outputs[0]);
    T* const second = static_cast<T*>(outputs[1]);
    std::size_t i = 0;
    for (; i + 2 * lanes <= count; i += 2 * lanes) {
        const auto a = hn::Mul(hn::Add(V::load(tag, one + i), V::load(tag, two + i)), factor);
        const auto b = hn::Mul(hn::Add(V::load(tag, one + i + lanes), V::load(tag, two + i + lanes)), factor);
        V::store(tag, a, first + i);
        V::store(tag, b, first + i + lanes);
        V::store(tag, a, second + i);
        V::store(tag, b, second + i + lanes);
    }
    return i;
}

template <typename T, typename Op>
void reduce_into(const void* const* sources, std::size_t source_count, std::size_t count, double scale,
                 void* const* outputs, std::size_t output_count) {
    std::size_t done = 0;
    if constexpr (Vectors<T>::kUsed && std::is_same_v<T, Accumulator<T>> && std::is_same_v<Op, Sum>) {
        if (source_count == 2 && output_count == 2) done = reduce_pair<T>(sources, count, scale, outputs);
    }
    if constexpr (Vectors<T>::kUsed) {
        if (done == 0) done = reduce_vectors<T, Op>(sources, source_count, count, scale, outputs, output_count);
    }
    reduce_into_from<T, Op>(done, sources, source_count, count, scale, outputs, output_count);
}

}  // namespace ddp::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
