// Loads NCCL and the CUDA runtime. That needs no driver: without one both libraries load, and the first CUDA call
// fails.

#include "worker_lib/src/nccl/device/api.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <string>

#include "worker_lib/src/bootstrap/environment.hpp"

namespace ddp::detail {
namespace {

using ddprun::Errc;
using ddprun::Result;

constexpr const char* kNcclLibrary = "libnccl.so.2";
constexpr std::array kCudaRuntimes{"libcudart.so.13", "libcudart.so.12"};
constexpr const char* kCudaDriver = "libcuda.so.1";  // as the runtime itself opens it

/// Opens one library and binds its functions. Remembers the first function that it lacks.
class Library {
public:
    /// RTLD_LOCAL: its symbols must not replace those of another copy that the trainer is linked against.
    explicit Library(const char* name) : handle_(::dlopen(name, RTLD_NOW | RTLD_LOCAL)), name_(name) {
        if (handle_ == nullptr) problem_ = last_error();
    }

    template <typename Function>
    void bind(Function*& function, const char* symbol) {
        if (handle_ == nullptr) return;
        function = reinterpret_cast<Function*>(::dlsym(handle_, symbol));
        if (function == nullptr && problem_.empty()) problem_ = fmt::format("{} has no function {}", name_, symbol);
    }
    [[nodiscard]] bool opened() const { return handle_ != nullptr; }
    /// Returns the problem; empty if the library is open and has all functions.
    [[nodiscard]] const std::string& problem() const { return problem_; }

private:
    static std::string last_error() {
        const char* text = ::dlerror();
        return text != nullptr ? text : "unknown error of the dynamic linker";
    }

    void* handle_;  // never closed, see load_gpu_api()
    std::string name_;
    std::string problem_;
};

Result<NcclApi> load_nccl() {
    const std::string chosen = process_variables()("DDPRUN_NCCL_LIBRARY").value_or("");
    const bool from_environment = !chosen.empty();
    Library library(from_environment ? chosen.c_str() : kNcclLibrary);
    if (!library.opened()) {
        return ddprun::Error{
            Errc::kNotFound,
            from_environment ? fmt::format("DDPRUN_NCCL_LIBRARY={} cannot be loaded ({})", chosen, library.problem())
                             : fmt::format("{} not found ({}); install NCCL, or name its file in "
                                           "DDPRUN_NCCL_LIBRARY",
                                           kNcclLibrary, library.problem())};
    }
    NcclApi api;
    library.bind(api.get_version, "ncclGetVersion");
    library.bind(api.get_unique_id, "ncclGetUniqueId");
    library.bind(api.comm_init_rank_config, "ncclCommInitRankConfig");
    library.bind(api.comm_get_async_error, "ncclCommGetAsyncError");
    library.bind(api.comm_abort, "ncclCommAbort");
    library.bind(api.comm_finalize, "ncclCommFinalize");
    library.bind(api.comm_destroy, "ncclCommDestroy");
    library.bind(api.all_reduce, "ncclAllReduce");
    library.bind(api.broadcast, "ncclBroadcast");
    library.bind(api.reduce, "ncclReduce");
    library.bind(api.all_gather, "ncclAllGather");
    library.bind(api.reduce_scatter, "ncclReduceScatter");
    library.bind(api.send, "ncclSend");
    library.bind(api.recv, "ncclRecv");
    library.bind(api.group_start, "ncclGroupStart");
    library.bind(api.group_end, "ncclGroupEnd");
    library.bind(api.get_error_string, "ncclGetErrorString");
    library.bind(api.get_last_error, "ncclGetLastError");
    if (!library.problem().empty()) {
        return ddprun::Error{Errc::kMismatch, fmt::format("{}; NCCL {} or newer is needed", library.problem(),
                                                          nccl_version_text(kOldestNccl))};
    }
    return api;
}

/// `driver` may be absent: count_devices() reports that.
CudaApi bind_cuda(Library& library, Library& driver) {
    CudaApi api;
    library.bind(api.get_device_count, "cudaGetDeviceCount");
    library.bind(api.get_device, "cudaGetDevice");
    library.bind(api.set_device, "cudaSetDevice");
    library.bind(api.stream_create_with_flags, "cudaStreamCreateWithFlags");
    library.bind(api.stream_destroy, "cudaStreamDestroy");
    library.bind(api.stream_wait_event, "cudaStreamWaitEvent");
    library.bind(api.event_create_with_flags, "cudaEventCreateWithFlags");
    library.bind(api.event_record, "cudaEventRecord");
    library.bind(api.event_query, "cudaEventQuery");
    library.bind(api.event_destroy, "cudaEventDestroy");
    library.bind(api.malloc, "cudaMalloc");
    library.bind(api.free, "cudaFree");
    library.bind(api.memset_async, "cudaMemsetAsync");
    library.bind(api.memcpy_async, "cudaMemcpyAsync");
    library.bind(api.exchange_capture_mode, "cudaThreadExchangeStreamCaptureMode");
    library.bind(api.stream_is_capturing, "cudaStreamIsCapturing");
    library.bind(api.get_last_error, "cudaGetLastError");
    library.bind(api.get_error_string, "cudaGetErrorString");
    driver.bind(api.get_context, "cuCtxGetCurrent");
    driver.bind(api.set_context, "cuCtxSetCurrent");
    driver.bind(api.pointer_attribute, "cuPointerGetAttribute");
    return api;
}

/// Returns the newest runtime that the driver supports. If there is none it returns the newest: its calls then fail
/// with the reason.
Result<CudaApi> load_cuda() {
    Library driver(kCudaDriver);
    std::string problems;
    Result<CudaApi> best = ddprun::Error{};
    for (const char* name : kCudaRuntimes) {
        Library library(name);
        const CudaApi api = bind_cuda(library, driver);
        if (!library.problem().empty()) {
            problems += (problems.empty() ? "" : "; ") + library.problem();
            continue;
        }
        int devices = 0;
        const cudaError_t error = api.get_device_count(&devices);
        if (error != cudaSuccess) (void)api.get_last_error();  // see count_devices()
        if (error == cudaSuccess && !driver.problem().empty()) return ddprun::Error{Errc::kMismatch, driver.problem()};
        if (error != cudaErrorInsufficientDriver) return api;
        if (!best) best = api;
    }
    if (best) return best;
    return ddprun::Error{Errc::kNotFound, fmt::format("the CUDA runtime cannot be loaded ({})", problems)};
}

}  // namespace

std::string nccl_version_text(int version) {
    return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

Result<GpuApi> load_gpu_api() {
    GpuApi api;
    const Result<NcclApi> nccl = load_nccl();
    if (!nccl) return nccl.error();
    api.nccl = *nccl;
    if (const ncclResult_t result = api.nccl.get_version(&api.nccl_version); result != ncclSuccess) {
        return ddprun::Error{Errc::kSystem, fmt::format("ncclGetVersion: {}", api.nccl.get_error_string(result))};
    }
    if (api.nccl_version < kOldestNccl) {
        return ddprun::Error{Errc::kMismatch,
                             fmt::format("NCCL {} is too old, {} or newer is needed",
                                         nccl_version_text(api.nccl_version), nccl_version_text(kOldestNccl))};
    }
    const Result<CudaApi> cuda = load_cuda();
    if (!cuda) {
        return ddprun::with_context(fmt::format("NCCL {} present", nccl_version_text(api.nccl_version)), cuda.error());
    }
    api.cuda = *cuda;
    return api;
}

Result<int> count_devices(const CudaApi& cuda) {
    int count = 0;
    const cudaError_t error = cuda.get_device_count(&count);
    if (error != cudaSuccess) {
        (void)cuda.get_last_error();
        return ddprun::Error{Errc::kNotFound, fmt::format("no CUDA device ({})", cuda.get_error_string(error))};
    }
    if (count == 0) return ddprun::Error{Errc::kNotFound, "no CUDA device"};
    return count;
}

}  // namespace ddp::detail
