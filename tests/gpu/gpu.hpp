#pragma once
// Helpers that the GPU tests share: device memory, copies, and skipping a case where there is no device.
//
// Tags: [ranks] also runs as several ranks of a job. [check] is a check of scripts/gpu-check by itself, some of them
// only as one process, or as ranks that ddprun has started; the other tags say which.

#include <dlfcn.h>

#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "ddp/context.hpp"
#include "ddp/error.hpp"
#include "tests/catch.hpp"
#include "worker_lib/src/bootstrap/environment.hpp"
#include "worker_lib/src/bootstrap/local_store.hpp"
#include "worker_lib/src/cuda/group_device.hpp"
#include "worker_lib/src/nccl/api.hpp"
#include "worker_lib/src/nccl/nccl.hpp"

namespace ddp::test {

using namespace abi;

/// Skips a case, as tests/catch_main.cpp has it, where there is no device.
#define RETURN_IF_NO_GPU()                                             \
    if (const auto found = ddp::detail::probe_nccl(); !found.usable) { \
        WARN("SKIPPED: no CUDA device (" << found.reason << ")");      \
        return;                                                        \
    }

/// A device with a stream and memory of the test's own. It is the current device of its maker's thread while it exists,
/// which only that thread may end.
class Gpu {
public:
    explicit Gpu(int device = 0) : device_(driver(), device), scope_(device_), event_(device_.acquire_event()) {}
    ~Gpu() {
        for (CUdeviceptr block : blocks_) (void)api_.mem_free(block);
        device_.release(event_);
        for (CUevent event : events_) device_.release(event);
    }
    Gpu(const Gpu&) = delete;
    Gpu& operator=(const Gpu&) = delete;

    [[nodiscard]] Stream stream() const { return {device_.stream()}; }

    /// Returns a function of the CUDA driver that is not in the backend's table; null: it has none of that name.
    template <typename Function>
    static Function function(const char* name) {
        void* const loaded = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
        return loaded == nullptr ? nullptr : reinterpret_cast<Function>(::dlsym(loaded, name));
    }

    void* allocate(std::size_t bytes) {
        CUdeviceptr block = 0;
        detail::check_cuda(api_, api_.mem_alloc(&block, bytes), "cuMemAlloc");
        blocks_.push_back(block);
        return reinterpret_cast<void*>(block);
    }
    /// Queues a copy of `values` to the device on stream(); `values` must live until finish().
    template <typename T>
    Buffer to_device(const std::vector<T>& values) {
        const Buffer buffer{allocate(values.size() * sizeof(T)), values.size(), dtype_of<T>, Device::Cuda};
        copy(buffer.data, values.data(), buffer.bytes());
        return buffer;
    }
    /// Copies `values` to the device behind the work on stream(), and waits for it.
    template <typename T>
    void fill(const Buffer& buffer, const std::vector<T>& values) {
        copy(buffer.data, values.data(), buffer.bytes());
        finish();
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
        record(event_);
        wait_for(event_);
    }

    /// Returns an event, which belongs to this object.
    CUevent make_event() {
        events_.push_back(device_.acquire_event());
        return events_.back();
    }
    /// Records `event` behind the work on stream().
    void record(CUevent event) {
        detail::check_cuda(api_, api_.event_record(event, device_.stream()), "cuEventRecord");
    }
    /// Polls until the device has passed `event`. Throws after a minute.
    void wait_for(CUevent event);
    /// Queues a kernel on stream() that takes `time`. Returns false where that is not possible.
    [[nodiscard]] bool hold(std::chrono::milliseconds time);
    /// Returns the free memory of the device in bytes; nothing: the driver does not report it.
    [[nodiscard]] static std::optional<std::size_t> free_memory();
    [[nodiscard]] const CudaApi& api() const { return api_; }

private:
    static CudaApi driver() {
        const CudaApi cuda = detail::load_cuda().value();
        (void)detail::count_devices(cuda).value();  // which starts the driver
        return cuda;
    }
    void copy(void* to, const void* from, std::size_t bytes) {
        const auto queued =
            api_.memcpy_async(detail::device_pointer(to), detail::device_pointer(from), bytes, device_.stream());
        detail::check_cuda(api_, queued, "cuMemcpyAsync");
    }

    detail::GroupDevice device_;
    const CudaApi& api_ = device_.cuda();
    const detail::DeviceScope scope_;
    const CUevent event_;
    std::vector<CUdeviceptr> blocks_;
    std::vector<CUevent> events_;
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

/// Skips a case, as RETURN_IF_NO_GPU, in a process that is not a rank of a job with others.
#define RETURN_UNLESS_ONE_OF_SEVERAL()                                           \
    RETURN_IF_NO_GPU();                                                          \
    if (!is_one_of_several()) {                                                  \
        WARN("SKIPPED: needs 2 ranks: scripts/gpu-check starts it with ddprun"); \
        return;                                                                  \
    }

/// Sums the group's ones on the device, and returns whether the result is its size.
inline bool sums_ones(Gpu& gpu, ProcessGroup& group, std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
    const std::vector<float> ones(1000, 1.0f);
    const Buffer buffer = gpu.to_device(ones);
    group.all_reduce(buffer, ReduceOp::Sum, {.timeout = timeout, .stream = gpu.stream()}).wait_host();
    return gpu.to_host<float>(buffer) == std::vector<float>(ones.size(), static_cast<float>(group.size()));
}

}  // namespace ddp::test
