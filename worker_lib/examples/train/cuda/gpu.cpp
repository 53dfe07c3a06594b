#include "cuda/gpu.hpp"

#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cuda/library.hpp"
#include "support/user_error.hpp"

namespace train {
namespace {

constexpr unsigned kBlockThreads = 256;
constexpr int kNotReady = 600;  // CUDA_ERROR_NOT_READY

using Handle = void*;                      // a context, stream, event, module or kernel
using DevicePointer = unsigned long long;  // CUdeviceptr

DevicePointer address(const void* memory) { return reinterpret_cast<DevicePointer>(memory); }

constexpr std::array<const char*, static_cast<std::size_t>(Kernel::kCount)> kKernelNames{
    "train_embed",         "train_add_bias",      "train_add_bias_tanh",      "train_softmax", "train_softmax_backward",
    "train_bias_gradient", "train_tanh_backward", "train_embedding_gradient", "train_sgd",     "train_adamw"};

}  // namespace

/// The driver's functions, with the types of cuda.h (CUresult is an int here), and what was made by them.
struct Gpu::Driver {
    int (*init)(unsigned flags) = nullptr;
    int (*device_get_count)(int* count) = nullptr;
    int (*device_get)(int* device, int ordinal) = nullptr;
    int (*primary_ctx_retain)(Handle* context, int device) = nullptr;
    int (*primary_ctx_release)(int device) = nullptr;
    int (*ctx_set_current)(Handle context) = nullptr;
    int (*stream_create)(Handle* stream, unsigned flags, int priority) = nullptr;
    int (*stream_synchronize)(Handle stream) = nullptr;
    int (*stream_destroy)(Handle stream) = nullptr;
    int (*event_create)(Handle* event, unsigned flags) = nullptr;
    int (*event_record)(Handle event, Handle stream) = nullptr;
    int (*event_query)(Handle event) = nullptr;
    int (*event_destroy)(Handle event) = nullptr;
    int (*mem_host_alloc)(void** memory, std::size_t bytes, unsigned flags) = nullptr;
    int (*mem_free_host)(void* memory) = nullptr;
    int (*memcpy_async)(DevicePointer to, DevicePointer from, std::size_t bytes, Handle stream) = nullptr;
    int (*memset_async)(DevicePointer memory, unsigned char value, std::size_t bytes, Handle stream) = nullptr;
    int (*module_load)(Handle* module, const void* image, unsigned options, void* names, void** values) = nullptr;
    int (*module_get_function)(Handle* function, Handle module, const char* name) = nullptr;
    int (*module_unload)(Handle module) = nullptr;
    int (*launch_kernel)(Handle function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                         unsigned block_y, unsigned block_z, unsigned shared_bytes, Handle stream, void** arguments,
                         void** extra) = nullptr;
    int (*get_error_string)(int error, const char** text) = nullptr;

    int device = 0;
    Handle context = nullptr, stream = nullptr, event = nullptr, module = nullptr;
    std::array<Handle, kKernelNames.size()> kernels{};
    std::vector<void*> pinned;

    explicit Driver(const Library& library) {
        library.bind(init, "cuInit");
        library.bind(device_get_count, "cuDeviceGetCount");
        library.bind(device_get, "cuDeviceGet");
        library.bind(primary_ctx_retain, "cuDevicePrimaryCtxRetain");
        library.bind(primary_ctx_release, "cuDevicePrimaryCtxRelease_v2");
        library.bind(ctx_set_current, "cuCtxSetCurrent");
        library.bind(stream_create, "cuStreamCreateWithPriority");
        library.bind(stream_synchronize, "cuStreamSynchronize");
        library.bind(stream_destroy, "cuStreamDestroy_v2");
        library.bind(event_create, "cuEventCreate");
        library.bind(event_record, "cuEventRecord");
        library.bind(event_query, "cuEventQuery");
        library.bind(event_destroy, "cuEventDestroy_v2");
        library.bind(mem_host_alloc, "cuMemHostAlloc");
        library.bind(mem_free_host, "cuMemFreeHost");
        library.bind(memcpy_async, "cuMemcpyAsync");
        library.bind(memset_async, "cuMemsetD8Async");
        library.bind(module_load, "cuModuleLoadDataEx");
        library.bind(module_get_function, "cuModuleGetFunction");
        library.bind(module_unload, "cuModuleUnload");
        library.bind(launch_kernel, "cuLaunchKernel");
        library.bind(get_error_string, "cuGetErrorString");
    }
    ~Driver() {  // failures do not matter: the process is about to end
        for (void* const memory : pinned) (void)mem_free_host(memory);
        if (event != nullptr) (void)event_destroy(event);
        if (stream != nullptr) (void)stream_destroy(stream);
        if (module != nullptr) (void)module_unload(module);
        if (context != nullptr) (void)primary_ctx_release(device);
    }
    Driver(const Driver&) = delete;
    Driver& operator=(const Driver&) = delete;

    /// Throws ddp::Error for an error. After one of a kernel the process cannot use the device any more.
    void check(int error, const char* what) const {
        if (error == 0) return;
        const char* text = nullptr;
        (void)get_error_string(error, &text);
        throw ddp::Error(ddp::ErrorCode::System, concat(what, " on CUDA device ", device, ": ",
                                                        text != nullptr ? text : "unknown error", " (", error, ")"));
    }
};

Gpu::Gpu(int local_rank) {
    const Library library({"libcuda.so.1"});
    if (!library.is_open())
        throw UserError(concat("there is no CUDA driver (", library.problems(),
                               "). Install NVIDIA's driver, or pass --device cpu"));
    driver_ = std::make_unique<Driver>(library);
    Driver& cuda = *driver_;
    int devices = 0;
    cuda.check(cuda.init(0), "cuInit");
    cuda.check(cuda.device_get_count(&devices), "cuDeviceGetCount");
    cuda.device = devices == 1 ? 0 : local_rank;
    cuda.check(cuda.device_get(&cuda.device, cuda.device), "cuDeviceGet");
    // The primary context is that of the CUDA runtime, of cuBLAS and of ddp, too.
    cuda.check(cuda.primary_ctx_retain(&cuda.context, cuda.device), "cuDevicePrimaryCtxRetain");
    cuda.check(cuda.ctx_set_current(cuda.context), "cuCtxSetCurrent");
    constexpr unsigned kNonBlocking = 1, kDisableTiming = 2;
    cuda.check(cuda.stream_create(&cuda.stream, kNonBlocking, 0), "cuStreamCreateWithPriority");
    cuda.check(cuda.event_create(&cuda.event, kDisableTiming), "cuEventCreate");
    cuda.check(cuda.module_load(&cuda.module, kernels_ptx(), 0, nullptr, nullptr),
               "the kernels need compute capability 8.0 and a driver of CUDA 11.0 or newer: cuModuleLoadDataEx");
    for (std::size_t i = 0; i < kKernelNames.size(); ++i)
        cuda.check(cuda.module_get_function(&cuda.kernels[i], cuda.module, kKernelNames[i]), kKernelNames[i]);
}

Gpu::~Gpu() {
    if (driver_ != nullptr && driver_->stream != nullptr) (void)driver_->stream_synchronize(driver_->stream);
}

ddp::Stream Gpu::stream() const { return {driver_->stream}; }

void Gpu::launch(Kernel kernel, std::uint64_t count, void** arguments) {
    const auto which = static_cast<std::size_t>(kernel);
    const auto blocks = static_cast<unsigned>((count + kBlockThreads - 1) / kBlockThreads);
    driver_->check(driver_->launch_kernel(driver_->kernels[which], blocks, 1, 1, kBlockThreads, 1, 1, 0,
                                          driver_->stream, arguments, nullptr),
                   kKernelNames[which]);
}

void Gpu::copy(void* to, const void* from, std::size_t bytes) {
    if (bytes == 0) return;
    driver_->check(driver_->memcpy_async(address(to), address(from), bytes, driver_->stream), "cuMemcpyAsync");
}

void Gpu::clear(void* memory, std::size_t bytes) {
    if (bytes == 0) return;
    driver_->check(driver_->memset_async(address(memory), 0, bytes, driver_->stream), "cuMemsetD8Async");
}

void Gpu::mark() { driver_->check(driver_->event_record(driver_->event, driver_->stream), "cuEventRecord"); }

void Gpu::wait_for_mark() {
    constexpr std::chrono::microseconds kPause{20};
    int state = 0;
    while ((state = driver_->event_query(driver_->event)) == kNotReady) std::this_thread::sleep_for(kPause);
    driver_->check(state, "a kernel or copy");
}

void Gpu::wait() { driver_->check(driver_->stream_synchronize(driver_->stream), "a kernel or copy"); }

void* Gpu::allocate_pinned(std::size_t bytes) {
    void* memory = nullptr;
    driver_->check(driver_->mem_host_alloc(&memory, bytes, 0), "cuMemHostAlloc");
    driver_->pinned.push_back(memory);
    return memory;
}

}  // namespace train
