#include "worker_lib/src/reducer/low_rank.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace ddp::detail {
namespace {

constexpr std::size_t kSums = 16;    // as many sums as the widest vector has elements
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

void add_multiple(float factor, const float* from, float* onto, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) onto[i] += factor * from[i];
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
        add_multiple(1, &gradient[i * columns], row, columns);
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
            for (std::size_t other = 0; other < k; ++other)
                add_multiple(-dot(column, &left[other * rows], rows), &left[other * rows], column, rows);
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
    for (std::size_t i = 0; i < rows; ++i) {
        for (std::size_t k = 0; k < rank; ++k)
            add_multiple(left[k * rows + i], &matrix[i * columns], &right[k * columns], columns);
    }
}

void add_product(const MatrixShape& shape, float factor, std::span<const float> left, std::span<const float> right,
                 std::span<float> matrix) {
    const auto& [rows, columns, rank] = shape;
    for (std::size_t i = 0; i < rows; ++i) {
        for (std::size_t k = 0; k < rank; ++k)
            add_multiple(factor * left[k * rows + i], &right[k * columns], &matrix[i * columns], columns);
    }
}

}  // namespace ddp::detail
