#pragma once
// What the tests of reductions reduce: every type and operation, and inputs of any length with a short period.

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "tests/unit/worker_lib/support/reduction_reference.hpp"

namespace ddp::testing {

/// Long inputs repeat after so many elements, a prime, so that the slow reference is computed for one period only and
/// an element that ends up in another's place is still seen.
inline constexpr std::size_t kPeriod = 4099;

inline Bytes repeat(const Bytes& period, std::size_t bytes) {
    Bytes all;
    all.reserve(bytes + period.size());
    while (all.size() < bytes) all.insert(all.end(), period.begin(), period.end());
    all.resize(bytes);
    return all;
}

/// The first period of a rank's input: pseudo-random, between -4 and 4 for floats, any bits for integers, 0 or 1 for
/// bool.
inline Bytes make_input(std::size_t count, DType type, int rank) {
    Bytes bytes(std::min(count, kPeriod) * size_of(type));
    std::uint64_t state = 0x9e3779b97f4a7c15ULL * static_cast<std::uint64_t>(rank + 1);
    for (std::size_t i = 0; i < bytes.size(); i += size_of(type)) {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        const std::uint64_t random = state >> 8;
        if (is_float(type)) {
            write_float(&bytes[i], type, static_cast<double>(random % 2001) / 250.0 - 3.999);
        } else if (type == DType::Bool) {
            bytes[i] = std::byte{random % 2 == 1};
        } else {
            std::memcpy(&bytes[i], &random, size_of(type));
        }
    }
    return bytes;
}

/// Where arithmetic goes wrong first: zeros, subnormals, ties, overflow by rounding and by adding, infinities, NaN.
inline const std::array<double, 17>& hard_values(DType type) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    static const std::array<double, 17> of_f64{0.0,          -0.0,        5e-324,  -1e-310, 2.3e-308, -3e-162,
                                               std::nan(""), 1 + 0x1p-52, 0x1p-53, 1.7e308, 9e307,    -1.79e308,
                                               -kInfinity,   kInfinity,   0x3p-53, -1,      1};
    // Subnormals of f16, bf16 and f32; a few are beyond f16.
    static const std::array<double, 17> of_others{
        0.0,   -0.0,    1e-45,     -1e-40,     6e-8,      -3e-5,      std::nan(""), 1 + 0x1p-11, 1 + 0x3p-11,
        65504, 65519.9, 3.3895e38, -kInfinity, kInfinity, 1 + 0x1p-8, 1 + 0x3p-8,   -1};
    return type == DType::F64 ? of_f64 : of_others;
}

/// Writes them over a rank's input. Within 289 elements each meets each between ranks 0 and 1, within 4913 all three of
/// the first ranks; later ranks have one here and there, lest everything ends as NaN.
inline void put_hard_values(Bytes& input, DType type, int rank) {
    if (!is_float(type)) return;
    const auto& hard = hard_values(type);
    const std::size_t stride = rank == 0 ? 1 : rank == 1 ? hard.size() : rank == 2 ? hard.size() * hard.size() : 13;
    for (std::size_t i = 0; i < input.size() / size_of(type); ++i) {
        if (rank > 2 && i % stride != static_cast<std::size_t>(rank)) continue;
        write_float(&input[i * size_of(type)], type, hard[i / stride % hard.size()]);
    }
}

struct Case {
    DType type;
    ReduceOp op;
    std::size_t count;
    bool hard = false;  ///< inputs have hard values
    std::string text() const {
        return fmt::format("{} {}[{}]{}", to_string(op), to_string(type), count, hard ? ", hard" : "");
    }
};

/// What the ranks give, `count` elements each, and what that reduces to: of each the first period.
struct Inputs {
    std::vector<Bytes> of_rank;
    Bytes reduced;
};

inline Inputs make_inputs(const Case& one, std::size_t count, const std::vector<int>& ranks_per_node) {
    Inputs inputs;
    const int ranks = std::accumulate(ranks_per_node.begin(), ranks_per_node.end(), 0);
    for (int rank = 0; rank < ranks; ++rank) {
        inputs.of_rank.push_back(make_input(count, one.type, rank));
        if (one.hard) put_hard_values(inputs.of_rank.back(), one.type, rank);
    }
    inputs.reduced = reference_all_reduce(inputs.of_rank, ranks_per_node, one.type, one.op);
    return inputs;
}

inline std::vector<Case> all_types_and_ops(const std::vector<std::size_t>& counts) {
    std::vector<Case> cases;
    for (int type = 0; type <= static_cast<int>(DType::F64); ++type) {
        for (int op = 0; op <= static_cast<int>(ReduceOp::BitXor); ++op) {
            const auto dtype = static_cast<DType>(type);
            const auto reduce_op = static_cast<ReduceOp>(op);
            if (is_float(dtype) ? reduce_op >= ReduceOp::BitAnd : reduce_op == ReduceOp::Avg) continue;
            for (const std::size_t count : counts) cases.push_back({dtype, reduce_op, count});
        }
    }
    return cases;
}

/// All that is defined for floats, over hard values.
inline std::vector<Case> hard_cases(const std::vector<std::size_t>& counts) {
    auto cases = all_types_and_ops(counts);
    std::erase_if(cases, [](const Case& one) { return !is_float(one.type); });
    for (Case& one : cases) one.hard = true;
    return cases;
}

}  // namespace ddp::testing
