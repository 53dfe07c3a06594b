#pragma once
// The slow and obvious all-reduce, in the order that the library promises: the ranks of each node in rank order,
// then the nodes. Every element by itself; no code of the library but its enums.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "ddp/types.hpp"
#include "tests/unit/worker_lib/support/half_reference.hpp"

namespace ddp::testing {

using Bytes = std::vector<std::byte>;

template <typename T>
T read_as(const std::byte* at) {
    T value;
    std::memcpy(&value, at, sizeof(T));
    return value;
}

/// An element of a float type, exactly.
inline double float_at(const std::byte* at, DType type) {
    switch (type) {
        case DType::F16: return decode_f16(read_as<std::uint16_t>(at));
        case DType::BF16: return decode_bf16(read_as<std::uint16_t>(at));
        case DType::F32: return read_as<float>(at);
        default: return read_as<double>(at);
    }
}

inline void write_float(std::byte* at, DType type, double value) {
    const auto put = [at](auto bits) { std::memcpy(at, &bits, sizeof(bits)); };
    switch (type) {
        case DType::F16: return put(encode_f16(value));
        case DType::BF16: return put(encode_bf16(value));
        case DType::F32: return put(static_cast<float>(value));
        default: return put(value);
    }
}

/// An element of an integer type, extended to 64 bits by its sign.
inline std::uint64_t integer_at(const std::byte* at, DType type) {
    switch (type) {
        case DType::I8: return static_cast<std::uint64_t>(std::int64_t{read_as<std::int8_t>(at)});
        case DType::U8: return read_as<std::uint8_t>(at);
        case DType::Bool: return read_as<bool>(at);
        case DType::I16: return static_cast<std::uint64_t>(std::int64_t{read_as<std::int16_t>(at)});
        case DType::U16: return read_as<std::uint16_t>(at);
        case DType::I32: return static_cast<std::uint64_t>(std::int64_t{read_as<std::int32_t>(at)});
        case DType::U32: return read_as<std::uint32_t>(at);
        default: return read_as<std::uint64_t>(at);
    }
}

inline double combine_floats(ReduceOp op, double a, double b, DType type) {
    if (op == ReduceOp::Min || op == ReduceOp::Max) {
        if (std::isnan(a) || std::isnan(b)) return std::nan("");
        return op == ReduceOp::Min ? std::min(a, b) : std::max(a, b);
    }
    const double exact =
        op == ReduceOp::Product ? a * b : a + b;  // of two floats: exact enough to be rounded once more
    return type == DType::F64 ? exact : static_cast<float>(exact);
}

inline std::uint64_t combine_integers(ReduceOp op, std::uint64_t a, std::uint64_t b, bool is_signed) {
    const auto less = [is_signed](std::uint64_t x, std::uint64_t y) {
        return is_signed ? static_cast<std::int64_t>(x) < static_cast<std::int64_t>(y) : x < y;
    };
    switch (op) {
        case ReduceOp::Min: return less(b, a) ? b : a;
        case ReduceOp::Max: return less(a, b) ? b : a;
        case ReduceOp::Product: return a * b;
        case ReduceOp::BitAnd: return a & b;
        case ReduceOp::BitOr: return a | b;
        case ReduceOp::BitXor: return a ^ b;
        default: return a + b;
    }
}

/// Folds over the ranks of each node, then over the nodes.
template <typename T, typename At, typename Combine>
T fold(const std::vector<int>& ranks_per_node, At at, Combine combine) {
    std::size_t rank = 0;
    std::vector<T> nodes;
    for (const int ranks : ranks_per_node) {
        T sum = at(rank++);
        for (int i = 1; i < ranks; ++i) sum = combine(sum, at(rank++));
        nodes.push_back(sum);
    }
    T total = nodes[0];
    for (std::size_t i = 1; i < nodes.size(); ++i) total = combine(total, nodes[i]);
    return total;
}

/// Returns the result that every rank must get.
inline Bytes reference_all_reduce(const std::vector<Bytes>& inputs, const std::vector<int>& ranks_per_node, DType type,
                                  ReduceOp op) {
    const std::size_t width = size_of(type);
    Bytes result(inputs[0].size());
    for (std::size_t i = 0; i < result.size(); i += width) {
        if (is_float(type)) {
            double total = fold<double>(
                ranks_per_node, [&](std::size_t rank) { return float_at(&inputs[rank][i], type); },
                [&](double a, double b) { return combine_floats(op, a, b, type); });
            if (op == ReduceOp::Avg) {
                const double scale = 1.0 / static_cast<double>(inputs.size());
                total = type == DType::F64 ? total * scale : static_cast<float>(total) * static_cast<float>(scale);
            }
            write_float(&result[i], type, total);
        } else {
            const bool is_signed = type == DType::I8 || type == DType::I16 || type == DType::I32 || type == DType::I64;
            const auto total = fold<std::uint64_t>(
                ranks_per_node, [&](std::size_t rank) { return integer_at(&inputs[rank][i], type); },
                [&](std::uint64_t a, std::uint64_t b) {
                    const std::uint64_t sum = combine_integers(op, a, b, is_signed);
                    return type == DType::Bool ? std::uint64_t{sum != 0} : sum;  // bool += bool
                });
            std::memcpy(&result[i], &total, width);  // the low bytes: little-endian, as all hosts of this library
        }
    }
    return result;
}

/// Returns the index of the first element that differs, or -1. Two NaNs are equal.
inline std::ptrdiff_t first_difference(const Bytes& a, const Bytes& b, DType type) {
    if (a.size() != b.size()) return 0;
    if (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0) return -1;
    const std::size_t width = size_of(type);
    for (std::size_t i = 0; i < a.size(); i += width) {
        if (std::memcmp(&a[i], &b[i], width) == 0) continue;
        if (is_float(type) && std::isnan(float_at(&a[i], type)) && std::isnan(float_at(&b[i], type))) continue;
        return static_cast<std::ptrdiff_t>(i / width);
    }
    return -1;
}

}  // namespace ddp::testing
