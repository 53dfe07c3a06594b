// Compiled at -O3 in every configuration: these loops are where the time goes.
#include "worker_lib/src/native/reduce.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstdint>
#include <type_traits>

#include "worker_lib/src/native/half.hpp"

namespace ddp::detail {

namespace {

// How an element becomes an accumulator and back.
template <typename T>
struct Element {
    using Accumulator = T;
    static T load(T value) { return value; }
    static T store(T value) { return value; }
};
template <>
struct Element<Half> {
    using Accumulator = float;
    static float load(Half value) { return to_float(value); }
    static Half store(float value) { return to_half(value); }
};
template <>
struct Element<Bfloat16> {
    using Accumulator = float;
    static float load(Bfloat16 value) { return to_float(value); }
    static Bfloat16 store(float value) { return to_bfloat16(value); }
};

/// Integers are computed without sign, so that overflow wraps; products of narrow ones in 32 bits.
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
struct Min {  // b is taken when it is smaller or NaN; a NaN in a stays, for nothing is smaller
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
struct BAnd {
    template <typename T>
    static T apply(T a, T b) {
        return static_cast<T>(a & b);
    }
};
struct BOr {
    template <typename T>
    static T apply(T a, T b) {
        return static_cast<T>(a | b);
    }
};
struct BXor {
    template <typename T>
    static T apply(T a, T b) {
        return static_cast<T>(a ^ b);
    }
};

/// Elements that are accumulated at a time: on the stack, in the first-level cache.
constexpr std::size_t kBlock = 1024;

template <typename T, typename Op>
void reduce(const void* const* sources, std::size_t source_count, std::size_t count, void* out) {
    using Accumulator = typename Element<T>::Accumulator;
    std::array<Accumulator, kBlock> sum;
    for (std::size_t start = 0; start < count; start += kBlock) {
        const std::size_t n = std::min(kBlock, count - start);
        const T* first = static_cast<const T*>(sources[0]) + start;
        if (source_count == 1) {
            for (std::size_t i = 0; i < n; ++i) sum[i] = Element<T>::load(first[i]);
        } else {
            const T* second = static_cast<const T*>(sources[1]) + start;
            for (std::size_t i = 0; i < n; ++i)
                sum[i] = Op::apply(Element<T>::load(first[i]), Element<T>::load(second[i]));
        }
        for (std::size_t s = 2; s < source_count; ++s) {
            const T* next = static_cast<const T*>(sources[s]) + start;
            for (std::size_t i = 0; i < n; ++i) sum[i] = Op::apply(sum[i], Element<T>::load(next[i]));
        }
        std::copy_n(sum.begin(), n, static_cast<Accumulator*>(out) + start);
    }
}

template <typename T>
void finish(const void* accumulators, std::size_t count, double scale, void* elements) {
    using Accumulator = typename Element<T>::Accumulator;
    const auto* from = static_cast<const Accumulator*>(accumulators);
    auto* to = static_cast<T*>(elements);
    if constexpr (std::is_floating_point_v<Accumulator>) {
        const auto factor = static_cast<Accumulator>(scale);
        if (scale != 1) {
            for (std::size_t i = 0; i < count; ++i) to[i] = Element<T>::store(from[i] * factor);
            return;
        }
    }
    if constexpr (std::is_same_v<T, Accumulator>) {
        if (from != to) std::copy_n(from, count, to);
    } else {
        for (std::size_t i = 0; i < count; ++i) to[i] = Element<T>::store(from[i]);
    }
}

template <typename T, typename Op>
const Reduction& table() {
    using Accumulator = typename Element<T>::Accumulator;
    static constexpr Reduction kTable{reduce<T, Op>, reduce<Accumulator, Op>, finish<T>, sizeof(Accumulator)};
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
        case ReduceOp::BAnd:
        case ReduceOp::BOr:
        case ReduceOp::BXor: break;
    }
    if constexpr (std::is_integral_v<T>) {
        if (op == ReduceOp::BAnd) return table<T, BAnd>();
        if (op == ReduceOp::BOr) return table<T, BOr>();
        return table<T, BXor>();
    }
    assert(!"bitwise operations on floats are refused before they come here");
    return table<T, Sum>();
}

}  // namespace

const Reduction& lookup(DType type, ReduceOp op) {
    switch (type) {
        case DType::i8: return lookup_op<std::int8_t>(op);
        case DType::u8: return lookup_op<std::uint8_t>(op);
        case DType::i32: return lookup_op<std::int32_t>(op);
        case DType::u32: return lookup_op<std::uint32_t>(op);
        case DType::i64: return lookup_op<std::int64_t>(op);
        case DType::u64: return lookup_op<std::uint64_t>(op);
        case DType::f16: return lookup_op<Half>(op);
        case DType::bf16: return lookup_op<Bfloat16>(op);
        case DType::f32: return lookup_op<float>(op);
        case DType::f64: return lookup_op<double>(op);
    }
    assert(!"unknown element types are refused before they come here");
    return lookup_op<float>(op);
}

}  // namespace ddp::detail
