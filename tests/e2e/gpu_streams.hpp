#pragma once
// What a worker of a test does with the fake of the CUDA driver: streams, kernels, memory.

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ddp/ddp.hpp"
#include "worker_lib/src/cuda/group_device.hpp"

namespace e2e {

/// The rank's fake device. A kernel is any function: the fake's device memory is host memory. Kernels stay until the
/// end, for graphs that run them again. One thread.
class Gpu {
public:
    explicit Gpu(int index) : cuda_(*ddp::detail::load_cuda()), index_(index) { device_.emplace(cuda_, index); }

    [[nodiscard]] ddp::Stream make_stream() {
        streams_.push_back(std::make_unique<ddp::detail::GroupDevice>(cuda_, index_));
        return {streams_.back()->stream()};
    }
    void launch(ddp::Stream stream, std::function<void()> kernel) {
        const ddp::detail::DeviceScope scope(*device_);
        const auto run = [](void* argument) { (*static_cast<std::function<void()>*>(argument))(); };
        static auto& kernels = *new std::deque<std::function<void()>>;  // streams may run when the process ends
        kernels.push_back(std::move(kernel));
        if (call_(static_cast<CUstream_st*>(stream.handle), run, &kernels.back()) != 0)
            throw std::runtime_error("the fake refuses a kernel");
    }
    /// Makes `follower` wait for what is on `leader` now.
    void order(ddp::Stream leader, ddp::Stream follower) {
        const ddp::detail::DeviceScope scope(*device_);
        auto* const event = device_->acquire_event();
        ddp::detail::check_cuda(cuda_, cuda_.event_record(event, handle(leader)), "record");
        ddp::detail::check_cuda(cuda_, cuda_.stream_wait_event(handle(follower), event, 0), "wait");
        device_->release(event);
    }
    [[nodiscard]] ddp::Buffer allocate(std::size_t count, ddp::DType type) {
        const ddp::detail::DeviceScope scope(*device_);
        ddp::detail::CUdeviceptr memory = 0;
        ddp::detail::check_cuda(cuda_, cuda_.mem_alloc(&memory, std::max<std::size_t>(count * size_of(type), 1)),
                                "cuMemAlloc");
        return {reinterpret_cast<void*>(memory), count, type, ddp::Device::Cuda};
    }
    void capture(ddp::Stream stream) {
        const ddp::detail::DeviceScope scope(*device_);
        ddp::detail::check_cuda(
            cuda_, cuda_.stream_begin_capture(handle(stream), ddp::abi::CU_STREAM_CAPTURE_MODE_RELAXED), "capture");
    }
    /// Returns whether the capture was valid until now.
    [[nodiscard]] bool end_capture(ddp::Stream stream) {
        const ddp::detail::DeviceScope scope(*device_);
        ddp::abi::CUgraph graph = nullptr;
        if (cuda_.stream_end_capture(handle(stream), &graph) != ddp::abi::CUDA_SUCCESS) return false;
        return cuda_.graph_destroy(graph) == ddp::abi::CUDA_SUCCESS;
    }
    void finish(ddp::Stream stream) {
        const ddp::detail::DeviceScope scope(*device_);
        auto* const event = device_->acquire_event();
        ddp::detail::check_cuda(cuda_, cuda_.event_record(event, handle(stream)), "record");
        while (cuda_.event_query(event) == ddp::abi::CUDA_ERROR_NOT_READY)
            std::this_thread::sleep_for(std::chrono::microseconds(100));
        ddp::detail::check_cuda(cuda_, cuda_.event_query(event), "query");  // orders this thread behind the stream
        device_->release(event);
    }

private:
    using Call = int(CUstream_st*, void (*)(void*), void*);
    /// Returns a function that the library's table lacks.
    template <typename Function>
    static Function* driver_call(const char* name) {
        void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
        auto* const found = reinterpret_cast<Function*>(::dlsym(library, name));
        if (found == nullptr) throw std::runtime_error("this driver is not the fake");
        return found;
    }
    static ddp::detail::CUstream handle(ddp::Stream stream) {
        return static_cast<ddp::detail::CUstream>(stream.handle);
    }

    const ddp::detail::CudaApi cuda_;
    const int index_;
    Call* const call_ = driver_call<Call>("ddp_fake_cuda_call");
    std::optional<ddp::detail::GroupDevice> device_;
    std::vector<std::unique_ptr<ddp::detail::GroupDevice>> streams_;
};

/// Returns the code and the text of the error that a call throws.
inline std::string error_of(const std::function<void()>& call) {
    try {
        call();
        return "accepted";
    } catch (const ddp::Error& error) {
        return fmt::format("{}: {}", static_cast<int>(error.code()), error.what());
    }
}

}  // namespace e2e
