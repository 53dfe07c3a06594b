#pragma once
// gemm: the one BLAS routine that the model needs, C = op(A) op(B) on row-major matrices, for float and double.

#include <cblas.h>

#include <cstddef>

namespace train {

enum class Op { kNormal, kTransposed };

/// Multiplies dense matrices: op(A) is rows × inner, op(B) is inner × columns, C is rows × columns.
template <typename T>
void gemm(Op op_a, Op op_b, std::size_t rows, std::size_t columns, std::size_t inner, const T* a, const T* b, T* c) {
    const auto flag = [](Op op) { return op == Op::kNormal ? CblasNoTrans : CblasTrans; };
    const int m = static_cast<int>(rows);
    const int n = static_cast<int>(columns);
    const int k = static_cast<int>(inner);
    const int lda = op_a == Op::kNormal ? k : m;
    const int ldb = op_b == Op::kNormal ? n : k;
    if constexpr (sizeof(T) == sizeof(float)) {
        cblas_sgemm(CblasRowMajor, flag(op_a), flag(op_b), m, n, k, 1, a, lda, b, ldb, 0, c, n);
    } else {
        cblas_dgemm(CblasRowMajor, flag(op_a), flag(op_b), m, n, k, 1, a, lda, b, ldb, 0, c, n);
    }
}

}  // namespace train
