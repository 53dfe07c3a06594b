// The arithmetic of PowerSgd: orthonormal columns, and the same bits on all instruction sets.
#include "worker_lib/src/reducer/low_rank.hpp"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/reducer/low_rank_sets.hpp"

using ddp::detail::MatrixShape;
using ddp::testing::LowRankSet;

namespace {

using Values = std::vector<float>;

std::vector<LowRankSet> sets_of_this_machine() {
    std::vector<LowRankSet> sets{{"the library's", ddp::detail::add_and_multiply, ddp::detail::orthonormalise,
                                  ddp::detail::multiply_transposed, ddp::detail::subtract_product,
                                  ddp::detail::set_to_product}};
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) sets.push_back(ddp::testing::kLowRankAvx2);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        sets.push_back(ddp::testing::kLowRankAvx512);
#endif
    return sets;
}

Values wave(std::size_t count, double frequency) {
    Values values(count);
    for (std::size_t i = 0; i < count; ++i)
        values[i] = static_cast<float>(std::sin(frequency * static_cast<double>(i + 1)) * std::exp2(i % 23) * 1e-3);
    return values;
}

/// Returns all results of a step on one rank.
Values step_of(const LowRankSet& set, const MatrixShape& shape) {
    Values matrix = wave(shape.rows * shape.columns, 0.7), left(shape.left()), right = wave(shape.right(), 1.1);
    set.add_and_multiply(shape, wave(matrix.size(), 1.9), right, matrix, left);
    Values all = left;
    (void)set.orthonormalise(shape, left);
    set.multiply_transposed(shape, matrix, left, right);
    set.subtract_product(shape, left, right, matrix);
    Values product(matrix.size());
    set.set_to_product(shape, left, right, product);
    for (const Values& values : {left, right, matrix, product}) all.insert(all.end(), values.begin(), values.end());
    return all;
}

}  // namespace

TEST_CASE("P1: all instruction sets give the same bits", "[power_sgd]") {
    const std::vector<LowRankSet> sets = sets_of_this_machine();
    for (const MatrixShape& shape :
         {MatrixShape{1, 1, 1}, {6, 5, 2}, {7, 3, 1}, {64, 64, 4}, {33, 65, 3}, {100, 17, 8}}) {
        const Values right = step_of(sets.front(), shape);
        CHECK(std::isfinite(right.back()));
        for (const LowRankSet& set : sets) {
            CAPTURE(set.name, shape.rows, shape.columns, shape.rank);
            const Values found = step_of(set, shape);
            CHECK(std::memcmp(found.data(), right.data(), right.size() * sizeof(float)) == 0);
        }
    }
}

TEST_CASE("columns that are zero or depend on others become zero, and others are finite", "[power_sgd]") {
    Values columns{1, 2, 3, 2, 4, 6, 0, 0, 0};
    CHECK(ddp::detail::orthonormalise({3, 1, 3}, columns));
    CHECK(Values(columns.begin() + 3, columns.end()) == Values(6, 0.0f));
    Values bad{1, std::numeric_limits<float>::infinity()};
    CHECK_FALSE(ddp::detail::orthonormalise({2, 1, 1}, bad));
}

TEST_CASE("long and short columns are made orthonormal as well", "[power_sgd]") {
    for (const float size : {1e19f, 3e38f, 1e-25f}) {
        CAPTURE(size);
        Values column{0.6f * size, 0.8f * size};
        CHECK(ddp::detail::orthonormalise({2, 1, 1}, column));
        CHECK(column[0] == Approx(0.6));
        CHECK(column[1] == Approx(0.8));
    }
}
