#pragma once
// The one routine of BLAS that the model needs, for float and double: C = op(A) op(B) on row-major matrices.

#include <cblas.h>

#include <cstddef>

namespace train {

enum class Op { kNormal, kTransposed };

/// C is rows × columns; op(A) is rows × inner, op(B) is inner × columns. All matrices are dense.
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
