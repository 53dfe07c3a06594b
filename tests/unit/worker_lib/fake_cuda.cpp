// The CUDA runtime's part of the fake: streams, events and memory.

#include <cassert>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "tests/unit/worker_lib/fake_nccl.hpp"

namespace ddp::test {
namespace {

FakeGpu* the_fake = nullptr;
thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;

/// As the CUDA runtime does, "not yet" included.
cudaError_t remembered(cudaError_t error) {
    if (error != cudaSuccess) last_error = error;
    return error;
}

}  // namespace

struct FakeCudaCalls {
    using Lock = std::unique_lock<std::mutex>;
    static FakeGpu& fake() { return FakeGpu::current(); }
    static FakeEvent& real(cudaEvent_t event) { return *reinterpret_cast<FakeEvent*>(event); }

    static cudaError_t stream_create(cudaStream_t* stream, unsigned) {
        const Lock lock(fake().mutex_);
        ++fake().counts_.streams;
        *stream = reinterpret_cast<cudaStream_t>(new FakeStream);
        return cudaSuccess;
    }
    static cudaError_t stream_destroy(cudaStream_t stream) {
        const Lock lock(fake().mutex_);
        --fake().counts_.streams;
        delete reinterpret_cast<FakeStream*>(stream);
        return cudaSuccess;
    }
    static cudaError_t stream_wait_event(cudaStream_t stream, cudaEvent_t event, unsigned) {
        const Lock lock(fake().mutex_);
        const auto awaited = real(event).recorded;
        const auto task = fake().put(stream, nullptr);
        if (awaited) task->before.push_back(awaited);
        return cudaSuccess;
    }
    static cudaError_t event_create(cudaEvent_t* event, unsigned) {
        const Lock lock(fake().mutex_);
        if (fake().refuses_events) return remembered(cudaErrorMemoryAllocation);
        ++fake().counts_.events;
        *event = reinterpret_cast<cudaEvent_t>(new FakeEvent);
        return cudaSuccess;
    }
    static cudaError_t event_record(cudaEvent_t event, cudaStream_t stream) {
        const Lock lock(fake().mutex_);
        real(event).recorded = fake().at(stream).last;
        return cudaSuccess;
    }
    static cudaError_t event_query(cudaEvent_t event) {
        const Lock lock(fake().mutex_);
        const auto task = real(event).recorded;
        return task == nullptr || FakeGpu::settle(*task) ? cudaSuccess : remembered(cudaErrorNotReady);
    }
    static cudaError_t event_destroy(cudaEvent_t event) {
        const Lock lock(fake().mutex_);
        --fake().counts_.events;
        delete &real(event);
        return cudaSuccess;
    }
    static cudaError_t allocate(void** memory, std::size_t bytes) {
        const Lock lock(fake().mutex_);
        ++fake().counts_.blocks;
        *memory = std::malloc(bytes);
        fake().devices_of_blocks_[*memory] = current_device;
        std::memset(*memory, 0xAB, bytes);  // device memory starts as anything
        return cudaSuccess;
    }
    static cudaError_t free(void* memory) {
        const Lock lock(fake().mutex_);
        --fake().counts_.blocks;
        if (fake().devices_of_blocks_[memory] != current_device) ++fake().counts_.frees_elsewhere;
        std::free(memory);
        return cudaSuccess;
    }
    static cudaError_t memset_async(void* memory, int value, std::size_t bytes, cudaStream_t stream) {
        const Lock lock(fake().mutex_);
        fake().put(stream, [=] { return std::memset(memory, value, bytes) != nullptr; });
        return cudaSuccess;
    }
    static cudaError_t memcpy_async(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                                    cudaStream_t stream) {
        const Lock lock(fake().mutex_);
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
        current_device = device;
        return cudaSuccess;
    }
};

FakeGpu::FakeGpu() {
    assert(the_fake == nullptr);
    the_fake = this;
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
    cuda.get_device = [](int* device) { return *device = current_device, cudaSuccess; };
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
    cuda.get_last_error = [] { return std::exchange(last_error, cudaSuccess); };
    cuda.get_error_string = [](cudaError_t error) {
        return error == cudaErrorNoDevice ? "none is installed" : "as scripted";
    };
}

FakeGpu::Counts FakeGpu::counts() {
    const std::lock_guard lock(mutex_);
    return counts_;
}

cudaStream_t FakeGpu::make_stream() {
    const std::lock_guard lock(mutex_);
    own_streams_.push_back(std::make_unique<FakeStream>());
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

FakeStream& FakeGpu::at(cudaStream_t stream) {
    return stream == nullptr ? default_streams_[current_device] : *reinterpret_cast<FakeStream*>(stream);
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
