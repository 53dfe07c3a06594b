#include "worker_lib/src/reducer/low_rank.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace ddp::detail {
namespace {

constexpr std::size_t kSums = 16;    // as many sums as the widest vector has elements
constexpr std::size_t kTerms = 4;    // that are added in one pass, each to the sum of those before it
constexpr double kSmallest = 1e-30;  // a column of this length or less is zero
constexpr double kDependent = 1e-6;  // what is left of a column that depends on others, beside rounding

float dot(const float* a, const float* b, std::size_t count) {
    std::array<float, kSums> sums{};
    std::size_t i = 0;
    for (; i + kSums <= count; i += kSums) {
        for (std::size_t s = 0; s < kSums; ++s) sums[s] += a[i + s] * b[i + s];
    }
    for (std::size_t s = 0; i < count; ++i, ++s) sums[s] += a[i] * b[i];
    for (std::size_t half = kSums / 2; half > 0; half /= 2) {
        for (std::size_t s = 0; s < half; ++s) sums[s] += sums[s + half];
    }
    return sums[0];
}

/// The first of several numbers or vectors in memory, and how far the next one is.
struct Strided {
    const float* first;
    std::size_t stride;
};

/// Adds `terms` vectors onto one, in their order, each multiplied by `sign` and its factor.
void add_multiples(std::size_t terms, float sign, Strided factors, Strided vectors, float* onto, std::size_t count) {
    const auto factor = [&](std::size_t k) { return sign * factors.first[k * factors.stride]; };
    std::size_t k = 0;
    for (; k + kTerms <= terms; k += kTerms) {
        const float f0 = factor(k), f1 = factor(k + 1), f2 = factor(k + 2), f3 = factor(k + 3);
        const float* const a0 = vectors.first + k * vectors.stride;
        const float *const a1 = a0 + vectors.stride, *const a2 = a1 + vectors.stride, *const a3 = a2 + vectors.stride;
        for (std::size_t i = 0; i < count; ++i)
            onto[i] = (((onto[i] + f0 * a0[i]) + f1 * a1[i]) + f2 * a2[i]) + f3 * a3[i];
    }
    for (; k < terms; ++k) {
        const float one = factor(k);
        const float* const vector = vectors.first + k * vectors.stride;
        for (std::size_t i = 0; i < count; ++i) onto[i] += one * vector[i];
    }
}

/// In f64, so that the squares of all finite columns are finite, and those of short ones are not zero.
double length(const float* column, std::size_t count) {
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i) sum += double{column[i]} * double{column[i]};
    return std::sqrt(sum);
}

}  // namespace

void add_and_multiply(const MatrixShape& shape, std::span<const float> gradient, std::span<const float> right,
                      std::span<float> matrix, std::span<float> left) {
    const auto& [rows, columns, rank] = shape;
    for (std::size_t i = 0; i < rows; ++i) {
        float* const row = &matrix[i * columns];
        for (std::size_t j = 0; j < columns; ++j) row[j] += gradient[i * columns + j];
        for (std::size_t k = 0; k < rank; ++k) left[k * rows + i] = dot(row, &right[k * columns], columns);
    }
}

bool orthonormalise(const MatrixShape& shape, std::span<float> left) {
    const std::size_t rows = shape.rows;
    bool finite = true;
    for (std::size_t k = 0; k < shape.rank; ++k) {
        float* const column = &left[k * rows];
        const double before = length(column, rows);
        // Twice: the first time leaves errors where the column is almost a sum of the ones before.
        for (int pass = 0; pass < 2; ++pass) {
            for (std::size_t other = 0; other < k; ++other) {
                const float factor = dot(column, &left[other * rows], rows);
                add_multiples(1, -1, {&factor, 1}, {&left[other * rows], rows}, column, rows);
            }
        }
        const double after = length(column, rows);
        finite = finite && std::isfinite(before) && std::isfinite(after);
        const bool is_zero = after <= kSmallest || after <= kDependent * before;
        for (std::size_t i = 0; i < rows; ++i) column[i] = is_zero ? 0 : static_cast<float>(double{column[i]} / after);
    }
    return finite;
}

void multiply_transposed(const MatrixShape& shape, std::span<const float> matrix, std::span<const float> left,
                         std::span<float> right) {
    const auto& [rows, columns, rank] = shape;
    std::ranges::fill(right, 0.0f);
    for (std::size_t i = 0; i < rows; i += kTerms) {  // these rows stay in the cache while all columns are computed
        for (std::size_t k = 0; k < rank; ++k)
            add_multiples(std::min(kTerms, rows - i), 1, {&left[k * rows + i], 1}, {&matrix[i * columns], columns},
                          &right[k * columns], columns);
    }
}

void subtract_product(const MatrixShape& shape, std::span<const float> left, std::span<const float> right,
                      std::span<float> matrix) {
    const auto& [rows, columns, rank] = shape;
    for (std::size_t i = 0; i < rows; ++i)
        add_multiples(rank, -1, {&left[i], rows}, {right.data(), columns}, &matrix[i * columns], columns);
}

void set_to_product(const MatrixShape& shape, std::span<const float> left, std::span<const float> right,
                    std::span<float> matrix) {
    const auto& [rows, columns, rank] = shape;
    for (std::size_t i = 0; i < rows; ++i) {
        float* const row = &matrix[i * columns];
        std::fill_n(row, columns, 0.0f);
        add_multiples(rank, 1, {&left[i], rows}, {right.data(), columns}, row, columns);
    }
}

}  // namespace ddp::detail
