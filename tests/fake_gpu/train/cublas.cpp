// A fake of libcublas.so.13 for the example train: cublasSgemm with the loops, or the OpenBLAS, of the example on the
// CPU, so that both have the same bits. Only what the example calls is there.

#include <array>
#include <cstddef>
#include <memory>

#include "tests/fake_gpu/stream_call.hpp"
#include "worker_lib/examples/train/support/blas.hpp"

namespace {

// Values of cublasStatus_t.
constexpr int kSuccess = 0;
constexpr int kNotInitialized = 1;
constexpr int kInvalidValue = 7;
constexpr int kExecutionFailed = 13;
constexpr int kNotSupported = 15;

struct Handle {
    CUstream_st* stream = nullptr;
};

struct Product {
    train::Op op_a, op_b;
    std::size_t rows, columns, inner;
    const float* a;
    const float* b;
    float* c;
};

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int cublasCreate_v2(Handle** handle) {
    if (ddp_fake_cuda_current_device() < 0) return kNotInitialized;
    *handle = new Handle;
    return kSuccess;
}

__attribute__((visibility("default"))) int cublasDestroy_v2(Handle* handle) {
    if (handle == nullptr) return kNotInitialized;
    ddp_fake_cuda_wait_for_device(ddp_fake_cuda_current_device());
    delete handle;
    return kSuccess;
}

__attribute__((visibility("default"))) int cublasSetStream_v2(Handle* handle, CUstream_st* stream) {
    if (handle == nullptr) return kNotInitialized;
    handle->stream = stream;
    return kSuccess;
}

/// Takes dense matrices, and computes C = op(A) op(B) only.
__attribute__((visibility("default"))) int cublasSgemm_v2(Handle* handle, int op_a, int op_b, int m, int n, int k,
                                                          const float* alpha, const float* a, int stride_a,
                                                          const float* b, int stride_b, const float* beta, float* c,
                                                          int stride_c) {
    if (handle == nullptr) return kNotInitialized;
    if (m < 0 || n < 0 || k < 0 || op_a < 0 || op_a > 1 || op_b < 0 || op_b > 1) return kInvalidValue;
    if (*alpha != 1 || *beta != 0) return kNotSupported;
    if (stride_a != (op_a == 0 ? m : k) || stride_b != (op_b == 0 ? k : n) || stride_c != m) return kNotSupported;
    const auto op = [](int flag) { return flag == 0 ? train::Op::kNormal : train::Op::kTransposed; };
    const auto size = [](int value) { return static_cast<std::size_t>(value); };
    // Column-major C = op(A) op(B) is row-major C' = op(B)' op(A)'.
    auto product = std::make_unique<Product>(Product{.op_a = op(op_b),
                                                     .op_b = op(op_a),
                                                     .rows = size(n),
                                                     .columns = size(m),
                                                     .inner = size(k),
                                                     .a = b,
                                                     .b = a,
                                                     .c = c});
    const std::array<const void*, 3> memory{a, b, c};
    const auto run = [](void* argument) {
        const std::unique_ptr<Product> mine(static_cast<Product*>(argument));
        train::gemm(mine->op_a, mine->op_b, mine->rows, mine->columns, mine->inner, mine->a, mine->b, mine->c);
    };
    if (ddp_fake_cuda_call_with(handle->stream, run, product.get(), memory.data(), memory.size()) != 0)
        return kExecutionFailed;
    (void)product.release();  // run() owns it
    return kSuccess;
}

}  // extern "C"
