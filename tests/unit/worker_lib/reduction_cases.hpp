#pragma once
// What the tests of reductions reduce: every type and operation, and inputs of any length with a short period.

#include <fmt/format.h>

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "tests/unit/worker_lib/reduction_reference.hpp"

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

/// The first period of a rank's input: pseudo-random, between -4 and 4 for floats, any bits for integers.
inline Bytes make_input(std::size_t count, DType type, int rank) {
    Bytes bytes(std::min(count, kPeriod) * size_of(type));
    std::uint64_t state = 0x9e3779b97f4a7c15ULL * static_cast<std::uint64_t>(rank + 1);
    for (std::size_t i = 0; i < bytes.size(); i += size_of(type)) {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        const std::uint64_t random = state >> 8;
        if (is_float(type)) {
            write_float(&bytes[i], type, static_cast<double>(random % 2001) / 250.0 - 3.999);
        } else {
            std::memcpy(&bytes[i], &random, size_of(type));
        }
    }
    return bytes;
}

struct Case {
    DType type;
    ReduceOp op;
    std::size_t count;
    std::string text() const { return fmt::format("{} {}[{}]", to_string(op), to_string(type), count); }
};

/// What the ranks give, `count` elements each, and what that reduces to: of each the first period.
struct Inputs {
    std::vector<Bytes> of_rank;
    Bytes reduced;
};

inline Inputs make_inputs(const Case& one, std::size_t count, const std::vector<int>& ranks_per_node) {
    Inputs inputs;
    const int ranks = std::accumulate(ranks_per_node.begin(), ranks_per_node.end(), 0);
    for (int rank = 0; rank < ranks; ++rank) inputs.of_rank.push_back(make_input(count, one.type, rank));
    inputs.reduced = reference_all_reduce(inputs.of_rank, ranks_per_node, one.type, one.op);
    return inputs;
}

inline std::vector<Case> all_types_and_ops(const std::vector<std::size_t>& counts) {
    std::vector<Case> cases;
    for (int type = 0; type <= static_cast<int>(DType::f64); ++type) {
        for (int op = 0; op <= static_cast<int>(ReduceOp::BXor); ++op) {
            const auto dtype = static_cast<DType>(type);
            const auto reduce_op = static_cast<ReduceOp>(op);
            if (is_float(dtype) ? reduce_op >= ReduceOp::BAnd : reduce_op == ReduceOp::Avg) continue;
            for (const std::size_t count : counts) cases.push_back({dtype, reduce_op, count});
        }
    }
    return cases;
}

}  // namespace ddp::testing
