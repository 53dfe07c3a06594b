#pragma once
// Low-rank approximation of a matrix, the arithmetic of PowerSgd. All sums have a fixed order that depends neither on
// the instruction set nor on its width, because each rank computes the same factors. Pure.
//
// A matrix has `rows` × `columns` elements, row by row. A factor has `rank` columns, one after another.

#include <cstddef>
#include <span>

namespace ddp::detail {

struct MatrixShape {
    std::size_t rows = 0;
    std::size_t columns = 0;
    std::size_t rank = 0;  ///< of its factors; 0: it is not a matrix

    [[nodiscard]] std::size_t left() const { return rows * rank; }      ///< elements of the factor P
    [[nodiscard]] std::size_t right() const { return columns * rank; }  ///< elements of the factor Q
};

/// Adds `gradient` to `matrix`, and sets `left` to the product of matrix and `right`: P = (M += G) Q.
void add_and_multiply(const MatrixShape& shape, std::span<const float> gradient, std::span<const float> right,
                      std::span<float> matrix, std::span<float> left);
/// Makes the columns orthonormal. Those that are zero, or depend on the ones before, become zero. Returns whether all
/// are finite.
[[nodiscard]] bool orthonormalise(const MatrixShape& shape, std::span<float> left);
/// Sets `right` to the product of the transposed matrix and `left`: Q = Mᵀ P.
void multiply_transposed(const MatrixShape& shape, std::span<const float> matrix, std::span<const float> left,
                         std::span<float> right);
/// Subtracts the product of the factors: M -= P Qᵀ.
void subtract_product(const MatrixShape& shape, std::span<const float> left, std::span<const float> right,
                      std::span<float> matrix);
/// Sets the matrix to the product of the factors: M = P Qᵀ.
void set_to_product(const MatrixShape& shape, std::span<const float> left, std::span<const float> right,
                    std::span<float> matrix);

}  // namespace ddp::detail
