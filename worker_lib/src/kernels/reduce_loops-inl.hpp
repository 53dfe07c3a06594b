// The arithmetic of reductions as plain loops, for all types and operations. Included once for each instruction set for
// which Highway compiles reduce.cpp, so that the compiler vectorises them for it.
#if defined(DDP_REDUCE_LOOPS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef DDP_REDUCE_LOOPS_INL_HPP
#undef DDP_REDUCE_LOOPS_INL_HPP
#else
#define DDP_REDUCE_LOOPS_INL_HPP
#endif

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>

#include <hwy/highway.h>

#include "ddp/float16.hpp"

HWY_BEFORE_NAMESPACE();
namespace ddp::detail::HWY_NAMESPACE {

// Conversion of an element to an accumulator and back.
template <typename T>
struct Element {
    using Accumulator = T;
    static T load(T value) { return value; }
    static T store(T value) { return value; }
};
template <>
struct Element<Float16> {
    using Accumulator = float;
    static float load(Float16 value) { return value; }
    static Float16 store(float value) { return Float16(value); }
};
template <>
struct Element<BFloat16> {
    using Accumulator = float;
    static float load(BFloat16 value) { return value; }
    static BFloat16 store(float value) { return BFloat16(value); }
};
template <typename T>
using Accumulator = typename Element<T>::Accumulator;

/// The unsigned type in which integers are computed, so that overflow wraps. Narrow ones use 32 bits.
template <typename T>
using Wrapping = std::conditional_t<sizeof(T) <= 4, std::uint32_t, std::uint64_t>;

struct Sum {
    template <typename T>
    static T apply(T a, T b) {
        if constexpr (std::is_integral_v<T>)
            return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
        else
            return a + b;
    }
};
struct Product {
    template <typename T>
    static T apply(T a, T b) {
        if constexpr (std::is_integral_v<T>)
            return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
        else
            return a * b;
    }
};
struct Min {  // takes b if it is smaller or NaN; a NaN in a stays, because no b is smaller
    template <typename T>
    static T apply(T a, T b) {
        return b < a || b != b ? b : a;
    }
};
struct Max {
    template <typename T>
    static T apply(T a, T b) {
        return b > a || b != b ? b : a;
    }
};
struct BitAnd {
    template <typename T>
    static T apply(T a, T b) {
        return static_cast<T>(a & b);
    }
};
struct BitOr {
    template <typename T>
    static T apply(T a, T b) {
        return static_cast<T>(a | b);
    }
};
struct BitXor {
    template <typename T>
    static T apply(T a, T b) {
        return static_cast<T>(a ^ b);
    }
};

/// Elements that are accumulated at a time, on the stack and in the first-level cache.
constexpr std::size_t kBlock = 1024;

/// Combines elements [start, start + n) of all sources; n is at most kBlock.
template <typename T, typename Op>
void accumulate(const void* const* sources, std::size_t source_count, std::size_t start, std::size_t n,
                Accumulator<T>* sum) {
    const T* first = static_cast<const T*>(sources[0]) + start;
    if (source_count == 1) {
        for (std::size_t i = 0; i < n; ++i) sum[i] = Element<T>::load(first[i]);
    } else {
        const T* second = static_cast<const T*>(sources[1]) + start;
        for (std::size_t i = 0; i < n; ++i) sum[i] = Op::apply(Element<T>::load(first[i]), Element<T>::load(second[i]));
    }
    for (std::size_t s = 2; s < source_count; ++s) {
        const T* next = static_cast<const T*>(sources[s]) + start;
        for (std::size_t i = 0; i < n; ++i) sum[i] = Op::apply(sum[i], Element<T>::load(next[i]));
    }
}

template <typename T, typename Op>
void reduce(const void* const* sources, std::size_t source_count, std::size_t count, void* out) {
    std::array<Accumulator<T>, kBlock> sum;
    for (std::size_t start = 0; start < count; start += kBlock) {
        const std::size_t n = std::min(kBlock, count - start);
        accumulate<T, Op>(sources, source_count, start, n, sum.data());
        std::copy_n(sum.data(), n, static_cast<Accumulator<T>*>(out) + start);
    }
}

template <typename T>
void finish(const void* accumulators, std::size_t count, double scale, void* elements) {
    const auto* from = static_cast<const Accumulator<T>*>(accumulators);
    auto* to = static_cast<T*>(elements);
    if constexpr (std::is_floating_point_v<Accumulator<T>>) {
        const auto factor = static_cast<Accumulator<T>>(scale);
        if (scale != 1) {
            for (std::size_t i = 0; i < count; ++i) to[i] = Element<T>::store(from[i] * factor);
            return;
        }
    }
    if constexpr (std::is_same_v<T, Accumulator<T>>) {
        if (from != to) std::copy_n(from, count, to);
    } else {
        for (std::size_t i = 0; i < count; ++i) to[i] = Element<T>::store(from[i]);
    }
}

/// Computes one element of reduce_into(). For a few elements, loops over blocks cost more than the arithmetic.
template <typename T, typename Op>
void reduce_one_into(std::size_t at, const void* const* sources, std::size_t source_count, double scale,
                     void* const* outputs, std::size_t output_count) {
    Accumulator<T> sum = Element<T>::load(static_cast<const T*>(sources[0])[at]);
    for (std::size_t s = 1; s < source_count; ++s)
        sum = Op::apply(sum, Element<T>::load(static_cast<const T*>(sources[s])[at]));
    T element;
    finish<T>(&sum, 1, scale, &element);
    for (std::size_t o = 0; o < output_count; ++o) static_cast<T*>(outputs[o])[at] = element;
}

/// Does reduce() and finish() in one pass, from element `start` on, into several outputs.
template <typename T, typename Op>
void reduce_into_from(std::size_t start, const void* const* sources, std::size_t source_count, std::size_t count,
                      double scale, void* const* outputs, std::size_t output_count) {
    constexpr std::size_t kHandful = 4;
    if (count - start <= kHandful) {
        for (; start < count; ++start)
            reduce_one_into<T, Op>(start, sources, source_count, scale, outputs, output_count);
        return;
    }
    std::array<Accumulator<T>, kBlock> sum;
    std::array<T, kBlock> elements;
    for (; start < count; start += kBlock) {
        const std::size_t n = std::min(kBlock, count - start);
        accumulate<T, Op>(sources, source_count, start, n, sum.data());
        finish<T>(sum.data(), n, scale, elements.data());
        for (std::size_t o = 0; o < output_count; ++o)
            std::copy_n(elements.data(), n, static_cast<T*>(outputs[o]) + start);
    }
}

}  // namespace ddp::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
