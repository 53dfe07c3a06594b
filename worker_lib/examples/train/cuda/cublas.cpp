#include "cuda/cublas.hpp"

#include <glob.h>

#include <cstdlib>

#include "cuda/library.hpp"
#include "support/user_error.hpp"

namespace train {
namespace {

constexpr int kSuccess = 0;
constexpr const char* kWhereFound =
    "libcublas.so.13 and libcublas.so.12 are neither where the dynamic linker looks (LD_LIBRARY_PATH), nor in "
    "$CUDA_HOME/lib64, /usr/local/cuda/lib64 or NVIDIA's packages of Python";

void add_existing(std::vector<std::string>& files, const std::string& folder) {
    glob_t found{};
    if (::glob((folder + "/libcublas.so.1[23]").c_str(), 0, nullptr, &found) == 0)
        files.insert(files.end(), found.gl_pathv, found.gl_pathv + found.gl_pathc);
    ::globfree(&found);
}

}  // namespace

std::vector<std::string> cublas_files() {
    std::vector<std::string> files{"libcublas.so.13", "libcublas.so.12"};
    const auto add = [&](const char* variable, const std::string& folder) {
        const char* const root = std::getenv(variable);
        if (root != nullptr && *root != '\0') add_existing(files, root + folder);
    };
    add("CUDA_HOME", "/lib64");
    add_existing(files, "/usr/local/cuda/lib64");
    for (const char* const package : {"cublas", "cu13"}) {
        const std::string folder = concat("/lib/python3*/*-packages/nvidia/", package, "/lib");
        add("VIRTUAL_ENV", folder);
        add("CONDA_PREFIX", folder);
        add("HOME", "/.local" + folder);
        add_existing(files, "/usr/local" + folder);
    }
    return files;
}

Cublas::Cublas(const std::vector<std::string>& files, ddp::Stream stream) {
    const Library library(files);
    if (!library.is_open())
        throw UserError(concat("there is no cuBLAS: ", kWhereFound,
                               ". Install the CUDA Toolkit, or nvidia-cublas-cu12 with pip, or pass --device cpu. (",
                               library.problems(), ")"));
    library.bind(create_, "cublasCreate_v2");
    library.bind(destroy_, "cublasDestroy_v2");
    library.bind(set_stream_, "cublasSetStream_v2");
    library.bind(sgemm_, "cublasSgemm_v2");
    if (const int status = create_(&handle_); status != kSuccess) {
        handle_ = nullptr;
        throw UserError(concat("cuBLAS does not start (status ", status,
                               "): it may be newer than the driver supports, or the device may have no memory left. "
                               "See nvidia-smi, or pass --device cpu"));
    }
    (void)set_stream_(handle_, stream.handle);  // fails only without a handle
}

Cublas::~Cublas() {
    if (handle_ != nullptr) (void)destroy_(handle_);
}

void Cublas::gemm(Op op_a, Op op_b, std::size_t rows, std::size_t columns, std::size_t inner, const float* a,
                  const float* b, float* c) {
    // cuBLAS has column-major matrices. The transposed of C = A B, as rows × columns, is B' A' as columns × rows.
    const auto flag = [](Op op) { return op == Op::kNormal ? 0 : 1; };
    const int m = static_cast<int>(columns), n = static_cast<int>(rows), k = static_cast<int>(inner);
    const float one = 1, zero = 0;
    const int status = sgemm_(handle_, flag(op_b), flag(op_a), m, n, k, &one, b, op_b == Op::kNormal ? m : k, a,
                              op_a == Op::kNormal ? k : n, &zero, c, m);
    if (status != kSuccess)
        throw ddp::Error(ddp::ErrorCode::System, concat("cublasSgemm has failed with status ", status));
}

}  // namespace train
