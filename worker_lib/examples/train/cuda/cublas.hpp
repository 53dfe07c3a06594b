#pragma once
// Cublas: the one routine of cuBLAS that the model needs, opened at run time. One thread, on its current device.

#include <cstddef>
#include <string>
#include <vector>

#include "ddp/ddp.hpp"
#include "support/blas.hpp"

namespace train {

/// Returns the files in which cuBLAS is looked for: by name where the dynamic linker looks, then those that exist in
/// the CUDA Toolkit ($CUDA_HOME, /usr/local/cuda) and in NVIDIA's packages of Python.
[[nodiscard]] std::vector<std::string> cublas_files();

class Cublas {
public:
    /// Uses the first of `files` that can be opened, on `stream`. Throws UserError if there is none, or if it does not
    /// start.
    Cublas(const std::vector<std::string>& files, ddp::Stream stream);
    ~Cublas();
    Cublas(const Cublas&) = delete;
    Cublas& operator=(const Cublas&) = delete;

    /// Enqueues the gemm() of support/blas.hpp, on row-major matrices in device memory.
    void gemm(Op op_a, Op op_b, std::size_t rows, std::size_t columns, std::size_t inner, const float* a,
              const float* b, float* c);

private:
    using Handle = void*;  // cublasHandle_t. The types are those of cublas_v2.h; a cublasStatus_t is an int here
    int (*create_)(Handle* handle) = nullptr;
    int (*destroy_)(Handle handle) = nullptr;
    int (*set_stream_)(Handle handle, void* stream) = nullptr;
    int (*sgemm_)(Handle handle, int op_a, int op_b, int m, int n, int k, const float* alpha, const float* a,
                  int stride_a, const float* b, int stride_b, const float* beta, float* c, int stride_c) = nullptr;
    Handle handle_ = nullptr;
};

}  // namespace train
