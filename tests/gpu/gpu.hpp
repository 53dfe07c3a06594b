#pragma once
// Helpers that the GPU tests share: device memory, copies, and skipping a case where there is no device.

#include <dlfcn.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "ddp/context.hpp"
#include "ddp/error.hpp"
#include "tests/catch.hpp"
#include "worker_lib/src/bootstrap/environment.hpp"
#include "worker_lib/src/bootstrap/local_store.hpp"
#include "worker_lib/src/nccl/device/group_device.hpp"
#include "worker_lib/src/nccl/nccl.hpp"

namespace ddp::test {

/// Skips a case, as tests/catch_main.cpp has it, where there is no device.
#define RETURN_IF_NO_GPU()                                             \
    if (const auto found = ddp::detail::probe_nccl(); !found.usable) { \
        WARN("SKIPPED: no CUDA device (" << found.reason << ")");      \
        return;                                                        \
    }

/// The CUDA runtime as the backend loads it, and a stream of the test's own.
class Gpu {
public:
    explicit Gpu(int device = 0) : api_(detail::load_gpu_api().value().cuda) {
        detail::check_cuda(api_, api_.set_device(device), "cudaSetDevice");
        detail::check_cuda(api_, api_.stream_create_with_flags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
        detail::check_cuda(api_, api_.event_create_with_flags(&event_, cudaEventDisableTiming), "cudaEventCreate");
    }
    ~Gpu() {
        for (void* block : blocks_) (void)api_.free(block);
        (void)api_.event_destroy(event_);
        (void)api_.stream_destroy(stream_);
    }
    Gpu(const Gpu&) = delete;
    Gpu& operator=(const Gpu&) = delete;

    [[nodiscard]] Stream stream() const { return {stream_}; }

    /// A function of the CUDA runtime that is loaded; null: it has none of that name.
    template <typename Function>
    static Function runtime(const char* name) {
        for (const char* library : {"libcudart.so.13", "libcudart.so.12"}) {
            if (void* const loaded = ::dlopen(library, RTLD_NOW | RTLD_NOLOAD)) {
                return reinterpret_cast<Function>(::dlsym(loaded, name));
            }
        }
        return nullptr;
    }

    void* allocate(std::size_t bytes) {
        void* block = nullptr;
        detail::check_cuda(api_, api_.malloc(&block, bytes), "cudaMalloc");
        blocks_.push_back(block);
        return block;
    }
    /// Queues a copy of `values` to the device on stream(); `values` must live until finish().
    template <typename T>
    Buffer to_device(const std::vector<T>& values) {
        const Buffer buffer{allocate(values.size() * sizeof(T)), values.size(), dtype_of<T>, Device::Cuda};
        copy(buffer.data, values.data(), buffer.bytes());
        return buffer;
    }
    /// Waits for stream(), copies behind it, waits again.
    template <typename T>
    std::vector<T> to_host(const Buffer& buffer) {
        std::vector<T> values(buffer.count);
        copy(values.data(), buffer.data, buffer.bytes());
        finish();
        return values;
    }
    void finish() {
        detail::check_cuda(api_, api_.event_record(event_, stream_), "cudaEventRecord");
        const auto limit = ddprun::Clock::now() + std::chrono::seconds(60);
        cudaError_t state = cudaErrorNotReady;
        while (state == cudaErrorNotReady && ddprun::Clock::now() < limit) {
            state = api_.event_query(event_);
            std::this_thread::yield();
        }
        detail::check_cuda(api_, state, "waiting for the test's stream");
    }

private:
    void copy(void* to, const void* from, std::size_t bytes) {
        detail::check_cuda(api_, api_.memcpy_async(to, from, bytes, cudaMemcpyDefault, stream_), "cudaMemcpyAsync");
    }

    const detail::CudaApi api_;
    cudaStream_t stream_ = nullptr;
    cudaEvent_t event_ = nullptr;
    std::vector<void*> blocks_;
};

inline InitOptions options_of(Backend backend) {
    InitOptions options;
    options.backend = backend;
    options.init_timeout = std::chrono::seconds(60);
    options.timeout = std::chrono::seconds(60);
    return options;
}

/// A world of this process alone.
inline Context lone_context(Backend backend) {
    return {Environment{}, detail::make_local_store(), options_of(backend)};
}

/// Returns whether this process is one rank of a world: scripts/gpu-check starts several that share a device, for NCCL
/// has no two ranks of a process on one.
inline bool is_one_of_several() { return detail::read_environment(detail::process_variables()).world_size > 1; }

/// Runs `body(Context&)` on this process's rank, if it is one of several; else on a rank for each device of this
/// machine, each on a thread of its own. What they returned or threw, as one text: only a test's own thread may assert.
template <typename Body>
std::string complaints_of_ranks(Body body) {
    if (is_one_of_several()) {
        try {
            Context context = init_from_env(options_of(Backend::Nccl));
            return body(context);
        } catch (const std::exception& error) {
            return error.what();
        }
    }
    const int devices = detail::count_devices(detail::load_gpu_api().value().cuda).value();
    const auto store = detail::make_local_store();
    std::vector<std::future<std::string>> ranks;
    for (int rank = 0; rank < devices; ++rank) {
        ranks.push_back(std::async(std::launch::async, [&, rank]() -> std::string {
            try {
                Environment environment;
                environment.rank = environment.local_rank = rank;
                environment.world_size = environment.local_world_size = devices;
                Context context(environment, store, options_of(Backend::Nccl));
                return body(context);
            } catch (const std::exception& error) {
                return error.what();
            }
        }));
    }
    std::string all;
    for (auto& rank : ranks) all += rank.get();
    return all;
}

}  // namespace ddp::test
