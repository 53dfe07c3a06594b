#pragma once
// gemm: the one BLAS routine that the model needs, C = op(A) op(B) on row-major matrices. For float it is OpenBLAS's,
// if that was found; else it is a loop, which takes longer.

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <vector>

#ifdef TRAIN_WITH_CBLAS
#include <cblas.h>
#endif

namespace train {

enum class Op { kNormal, kTransposed };

/// Multiplies dense matrices: op(A) is rows × inner, op(B) is inner × columns, C is rows × columns.
template <typename T>
void gemm(Op op_a, Op op_b, std::size_t rows, std::size_t columns, std::size_t inner, const T* a, const T* b, T* c) {
#ifdef TRAIN_WITH_CBLAS
    if constexpr (std::same_as<T, float>) {
        const auto flag = [](Op op) { return op == Op::kNormal ? CblasNoTrans : CblasTrans; };
        const int m = static_cast<int>(rows), n = static_cast<int>(columns), k = static_cast<int>(inner);
        cblas_sgemm(CblasRowMajor, flag(op_a), flag(op_b), m, n, k, 1, a, op_a == Op::kNormal ? k : m, b,
                    op_b == Op::kNormal ? n : k, 0, c, n);
        return;
    }
#endif
    std::vector<T> turned(op_b == Op::kNormal ? 0 : inner * columns);  // the innermost loop goes along rows of B and C
    for (std::size_t i = 0; i < turned.size(); ++i) turned[i] = b[i % columns * inner + i / columns];
    if (op_b == Op::kTransposed) b = turned.data();
    std::fill_n(c, rows * columns, T{0});
    for (std::size_t i = 0; i < rows; ++i) {
        for (std::size_t k = 0; k < inner; ++k) {
            const T factor = op_a == Op::kNormal ? a[i * inner + k] : a[k * rows + i];
            for (std::size_t j = 0; j < columns; ++j) c[i * columns + j] += factor * b[k * columns + j];
        }
    }
}

}  // namespace train
