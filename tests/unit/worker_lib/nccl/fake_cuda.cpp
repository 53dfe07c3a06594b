// The CUDA runtime's part of the fake: streams, events and memory.

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "tests/unit/worker_lib/nccl/fake_nccl.hpp"

namespace ddp::test {
namespace {

FakeGpu* the_fake = nullptr;
thread_local std::optional<int>
    context;  // the device whose context is current; none before the first call that needs one
thread_local cudaError_t last_error = cudaSuccess;
thread_local cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;

int current_device() { return context.value_or(0); }

/// Keeps the thread's last error as the CUDA runtime does, cudaErrorNotReady included.
cudaError_t remembered(cudaError_t error) {
    if (error != cudaSuccess) last_error = error;
    return error;
}

}  // namespace

struct FakeCudaCalls {
    using Lock = std::unique_lock<std::mutex>;
    static FakeGpu& fake() { return FakeGpu::current(); }
    static FakeEvent& real(cudaEvent_t event) { return *reinterpret_cast<FakeEvent*>(event); }
    /// The error of a call that ends the program's capture.
    static cudaError_t broken(cudaError_t error) {
        ++fake().counts_.broken_captures;
        return remembered(error);
    }

    static cudaError_t stream_create(cudaStream_t* stream, unsigned) {
        const Lock lock(fake().mutex_);
        fake().need_context();
        ++fake().counts_.streams;
        *stream = reinterpret_cast<cudaStream_t>(new FakeStream);
        return cudaSuccess;
    }
    static cudaError_t stream_destroy(cudaStream_t stream) {
        const Lock lock(fake().mutex_);
        fake().need_context();
        --fake().counts_.streams;
        delete reinterpret_cast<FakeStream*>(stream);
        return cudaSuccess;
    }
    static cudaError_t stream_wait_event(cudaStream_t stream, cudaEvent_t event, unsigned) {
        const Lock lock(fake().mutex_);
        fake().need_context();
        if (const cudaError_t wrong = fake().usable(stream); wrong != cudaSuccess) return broken(wrong);
        if (fake().at(stream).captured) return broken(cudaErrorStreamCaptureIsolation);
        const auto awaited = real(event).recorded;
        const auto task = fake().put(stream, nullptr);
        if (awaited) task->before.push_back(awaited);
        return cudaSuccess;
    }
    static cudaError_t event_create(cudaEvent_t* event, unsigned) {
        const Lock lock(fake().mutex_);
        fake().need_context();
        if (fake().refuses_events) return remembered(cudaErrorMemoryAllocation);
        ++fake().counts_.events;
        *event = reinterpret_cast<cudaEvent_t>(new FakeEvent{.device = current_device(), .recorded = {}});
        return cudaSuccess;
    }
    static cudaError_t event_record(cudaEvent_t event, cudaStream_t stream) {
        const Lock lock(fake().mutex_);
        fake().need_context();
        if (const cudaError_t wrong = fake().usable(stream); wrong != cudaSuccess) return broken(wrong);
        const FakeStream& recorded = fake().at(stream);
        if (recorded.device >= 0 && recorded.device != real(event).device)
            return remembered(cudaErrorInvalidResourceHandle);
        real(event).recorded = recorded.last;
        return cudaSuccess;
    }
    static cudaError_t event_query(cudaEvent_t event) {
        const Lock lock(fake().mutex_);
        fake().need_context();
        ++fake().counts_.queries;
        if (fake().ends_capture()) return remembered(cudaErrorStreamCaptureUnsupported);
        const auto task = real(event).recorded;
        return task == nullptr || FakeGpu::settle(*task) ? cudaSuccess : remembered(cudaErrorNotReady);
    }
    static cudaError_t event_destroy(cudaEvent_t event) {
        const Lock lock(fake().mutex_);
        fake().need_context();
        --fake().counts_.events;
        delete &real(event);
        return cudaSuccess;
    }
    static cudaError_t allocate(void** memory, std::size_t bytes) {
        const Lock lock(fake().mutex_);
        fake().need_context();
        if (fake().refuses_memory) return remembered(cudaErrorMemoryAllocation);
        if (fake().ends_capture()) return remembered(cudaErrorStreamCaptureUnsupported);
        ++fake().counts_.blocks;
        *memory = std::malloc(bytes);
        fake().devices_of_blocks_[*memory] = current_device();
        std::memset(*memory, 0xAB, bytes);  // device memory starts as anything
        return cudaSuccess;
    }
    static cudaError_t free(void* memory) {
        const Lock lock(fake().mutex_);
        fake().need_context();
        if (fake().ends_capture()) return remembered(cudaErrorStreamCaptureUnsupported);
        --fake().counts_.blocks;
        if (fake().devices_of_blocks_[memory] != current_device()) ++fake().counts_.frees_elsewhere;
        std::free(memory);
        return cudaSuccess;
    }
    static cudaError_t memset_async(void* memory, int value, std::size_t bytes, cudaStream_t stream) {
        const Lock lock(fake().mutex_);
        fake().need_context();
        fake().put(stream, [=] { return std::memset(memory, value, bytes) != nullptr; });
        return cudaSuccess;
    }
    static cudaError_t memcpy_async(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                                    cudaStream_t stream) {
        const Lock lock(fake().mutex_);
        fake().need_context();
        fake().put(stream, [=] { return std::memcpy(to, from, bytes) != nullptr; });
        return cudaSuccess;
    }
    static cudaError_t get_device_count(int* count) {
        *count = fake().devices;
        return remembered(*count == 0 ? cudaErrorNoDevice : cudaSuccess);
    }
    static cudaError_t set_device(int device) {
        const Lock lock(fake().mutex_);
        if (fake().lost_devices.contains(device)) return remembered(cudaErrorDevicesUnavailable);
        context = device;
        fake().need_context();
        return cudaSuccess;
    }
    static cudaError_t exchange_capture_mode(cudaStreamCaptureMode* mode) {
        const Lock lock(fake().mutex_);
        fake().need_context();
        std::swap(*mode, capture_mode);
        return cudaSuccess;
    }
    static cudaError_t stream_is_capturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
        const Lock lock(fake().mutex_);
        fake().need_context();
        if (const cudaError_t wrong = fake().usable(stream); wrong != cudaSuccess) return remembered(wrong);
        *status = fake().at(stream).captured ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
        return cudaSuccess;
    }
    static CUresult pointer_attribute(void* value, CUpointer_attribute attribute, CUdeviceptr pointer) {
        const Lock lock(fake().mutex_);
        const auto other = fake().other_memory.find(reinterpret_cast<const void*>(pointer));
        const int home = other == fake().other_memory.end() ? current_device() : other->second;
        if (home < 0) return CUDA_ERROR_INVALID_VALUE;
        const bool is_type = attribute == CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
        *static_cast<int*>(value) = is_type                                            ? CU_MEMORYTYPE_DEVICE
                                    : attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL ? home
                                                                                       : 0;  // not managed
        return CUDA_SUCCESS;
    }
    /// A context is represented by its device's number plus 1.
    static CUresult get_context(CUcontext* current) {
        *current = context ? reinterpret_cast<CUcontext>(static_cast<std::uintptr_t>(*context) + 1) : nullptr;
        return CUDA_SUCCESS;
    }
    static CUresult set_context(CUcontext chosen) {
        context.reset();
        if (chosen != nullptr) context = static_cast<int>(reinterpret_cast<std::uintptr_t>(chosen) - 1);
        return CUDA_SUCCESS;
    }
};

FakeGpu::FakeGpu() {
    assert(the_fake == nullptr);
    the_fake = this;
    context.reset();
}

FakeGpu::~FakeGpu() {
    std::unique_lock lock(mutex_);
    leaving_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return blocked_ == 0; });
    the_fake = nullptr;
}

FakeGpu& FakeGpu::current() { return *the_fake; }

detail::GpuApi FakeGpu::api(int nccl_version) const {
    detail::GpuApi api;
    api.nccl_version = nccl_version;
    fill(api.cuda);
    fill(api.nccl);
    return api;
}

void FakeGpu::fill(detail::CudaApi& cuda) {
    cuda.get_device_count = FakeCudaCalls::get_device_count;
    cuda.get_device = [](int* device) { return *device = current_device(), cudaSuccess; };
    cuda.set_device = FakeCudaCalls::set_device;
    cuda.stream_create_with_flags = FakeCudaCalls::stream_create;
    cuda.stream_destroy = FakeCudaCalls::stream_destroy;
    cuda.stream_wait_event = FakeCudaCalls::stream_wait_event;
    cuda.event_create_with_flags = FakeCudaCalls::event_create;
    cuda.event_record = FakeCudaCalls::event_record;
    cuda.event_query = FakeCudaCalls::event_query;
    cuda.event_destroy = FakeCudaCalls::event_destroy;
    cuda.malloc = FakeCudaCalls::allocate;
    cuda.free = FakeCudaCalls::free;
    cuda.memset_async = FakeCudaCalls::memset_async;
    cuda.memcpy_async = FakeCudaCalls::memcpy_async;
    cuda.exchange_capture_mode = FakeCudaCalls::exchange_capture_mode;
    cuda.stream_is_capturing = FakeCudaCalls::stream_is_capturing;
    cuda.pointer_attribute = FakeCudaCalls::pointer_attribute;
    cuda.get_context = FakeCudaCalls::get_context;
    cuda.set_context = FakeCudaCalls::set_context;
    cuda.get_last_error = [] { return std::exchange(last_error, cudaSuccess); };
    cuda.get_error_string = [](cudaError_t error) {
        return error == cudaErrorNoDevice ? "none is installed" : "as scripted";
    };
}

FakeGpu::Counts FakeGpu::counts() {
    const std::lock_guard lock(mutex_);
    return counts_;
}

cudaStream_t FakeGpu::make_stream(int device, bool blocking) {
    const std::lock_guard lock(mutex_);
    own_streams_.push_back(std::make_unique<FakeStream>());
    own_streams_.back()->device = device;
    own_streams_.back()->blocking = blocking;
    return reinterpret_cast<cudaStream_t>(own_streams_.back().get());
}

std::shared_ptr<std::atomic<bool>> FakeGpu::close_gate(cudaStream_t stream) {
    const std::lock_guard lock(mutex_);
    auto open = std::make_shared<std::atomic<bool>>(false);
    put(stream, [open] { return open->load(); });
    return open;
}

bool FakeGpu::advance(cudaStream_t stream) {
    const std::lock_guard lock(mutex_);
    const auto last = at(stream).last;
    return last == nullptr || settle(*last);
}

void FakeGpu::capture(cudaStream_t stream, bool captured) {
    const std::lock_guard lock(mutex_);
    at(stream).captured = captured;
}

bool FakeGpu::ends_capture() {
    if (!capturing || capture_mode == cudaStreamCaptureModeRelaxed) return false;
    ++counts_.broken_captures;
    return true;
}

cudaError_t FakeGpu::usable(cudaStream_t stream) const {
    const bool captured = std::ranges::any_of(own_streams_, [](const auto& own) {
        return own->blocking && own->captured && (own->device < 0 || own->device == current_device());
    });
    return stream == nullptr && captured ? cudaErrorStreamCaptureImplicit : cudaSuccess;
}

std::set<int> FakeGpu::contexts() {
    const std::lock_guard lock(mutex_);
    return contexts_;
}

void FakeGpu::need_context() {
    context = current_device();
    contexts_.insert(*context);
}

FakeStream& FakeGpu::at(cudaStream_t stream) {
    return stream == nullptr ? default_streams_[current_device()] : *reinterpret_cast<FakeStream*>(stream);
}

std::shared_ptr<FakeTask> FakeGpu::put(cudaStream_t stream, std::function<bool()> run) {
    auto task = std::make_shared<FakeTask>();
    if (auto& last = at(stream).last; last) task->before.push_back(last);
    task->run = std::move(run);
    at(stream).last = task;
    return task;
}

bool FakeGpu::settle(FakeTask& task) {
    if (task.done) return true;
    for (const auto& earlier : task.before) {
        if (!settle(*earlier)) return false;
    }
    task.before.clear();
    return task.done = !task.run || task.run();
}

}  // namespace ddp::test
