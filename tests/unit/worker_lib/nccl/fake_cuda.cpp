// The CUDA driver's part of the fake: contexts, streams, events and memory.

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
thread_local std::vector<int> contexts_of_thread;  // the devices of its contexts; the last is the current one
thread_local CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

/// A context is represented by its device's number plus 1.
CUcontext context_of(int device) { return reinterpret_cast<CUcontext>(static_cast<std::uintptr_t>(device) + 1); }
int device_of(CUcontext context) { return static_cast<int>(reinterpret_cast<std::uintptr_t>(context) - 1); }

/// For every call that this fake does not have.
template <typename... Arguments>
void refuse(CUresult (*&member)(Arguments...)) {
    member = [](Arguments...) { return CUDA_ERROR_NOT_SUPPORTED; };
}

}  // namespace

struct FakeCudaCalls {
    using Lock = std::unique_lock<std::mutex>;
    static FakeGpu& fake() { return FakeGpu::current(); }
    static FakeEvent& real(CUevent event) { return *reinterpret_cast<FakeEvent*>(event); }
    static void* memory_at(CUdeviceptr pointer) { return reinterpret_cast<void*>(pointer); }
    static bool has_context() { return !contexts_of_thread.empty(); }
    /// Returns the error of a call that ends the program's capture.
    static CUresult broken(CUresult error) {
        ++fake().counts_.broken_captures;
        return error;
    }

    static CUresult init(unsigned) { return fake().devices == 0 ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS; }
    static CUresult device_get_count(int* count) { return *count = fake().devices, CUDA_SUCCESS; }
    static CUresult device_get(CUdevice* device, int ordinal) { return *device = ordinal, CUDA_SUCCESS; }
    static CUresult device_get_uuid(CUuuid* uuid, CUdevice device) {
        *uuid = {};
        uuid->bytes[15] = static_cast<char>(device);
        return CUDA_SUCCESS;
    }
    static CUresult device_get_attribute(int* value, CUdevice_attribute attribute, CUdevice device) {
        if (attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) return CUDA_ERROR_NOT_SUPPORTED;
        *value = attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID ? 0x10 + device / fake().slices : 0;
        return CUDA_SUCCESS;
    }
    static CUresult retain(CUcontext* context, CUdevice device) {
        const Lock lock(fake().mutex_);
        if (fake().lost_devices.contains(device)) return CUDA_ERROR_DEVICE_UNAVAILABLE;
        ++fake().counts_.retained;
        fake().contexts_.insert(device);
        *context = context_of(device);
        return CUDA_SUCCESS;
    }
    static CUresult release(CUdevice) {
        const Lock lock(fake().mutex_);
        --fake().counts_.retained;
        fake().changed_.notify_all();
        return CUDA_SUCCESS;
    }
    static CUresult push(CUcontext context) {
        const Lock lock(fake().mutex_);
        if (fake().lost_devices.contains(device_of(context))) return CUDA_ERROR_DEVICE_UNAVAILABLE;
        contexts_of_thread.push_back(device_of(context));
        return CUDA_SUCCESS;
    }
    static CUresult pop(CUcontext* context) {
        if (!has_context()) return CUDA_ERROR_INVALID_CONTEXT;
        *context = context_of(contexts_of_thread.back());
        contexts_of_thread.pop_back();
        return CUDA_SUCCESS;
    }
    static CUresult stream_create(CUstream* stream, unsigned, int) {
        const Lock lock(fake().mutex_);
        if (!has_context()) return CUDA_ERROR_INVALID_CONTEXT;
        ++fake().counts_.streams;
        *stream = reinterpret_cast<CUstream>(new FakeStream);
        return CUDA_SUCCESS;
    }
    static CUresult stream_destroy(CUstream stream) {
        const Lock lock(fake().mutex_);
        if (!has_context()) return CUDA_ERROR_INVALID_CONTEXT;
        --fake().counts_.streams;
        delete reinterpret_cast<FakeStream*>(stream);
        return CUDA_SUCCESS;
    }
    static CUresult stream_wait_event(CUstream stream, CUevent event, unsigned) {
        const Lock lock(fake().mutex_);
        if (const CUresult wrong = fake().usable(stream); wrong != CUDA_SUCCESS) return broken(wrong);
        if (fake().at(stream).captured) return broken(CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
        const auto awaited = real(event).recorded;
        const auto task = fake().put(stream, nullptr);
        if (awaited) task->before.push_back(awaited);
        return CUDA_SUCCESS;
    }
    static CUresult event_create(CUevent* event, unsigned) {
        const Lock lock(fake().mutex_);
        if (!has_context()) return CUDA_ERROR_INVALID_CONTEXT;
        if (fake().refuses_events) return CUDA_ERROR_OUT_OF_MEMORY;
        ++fake().counts_.events;
        *event = reinterpret_cast<CUevent>(new FakeEvent{.device = contexts_of_thread.back(), .recorded = {}});
        return CUDA_SUCCESS;
    }
    static CUresult event_record(CUevent event, CUstream stream) {
        const Lock lock(fake().mutex_);
        if (const CUresult wrong = fake().usable(stream); wrong != CUDA_SUCCESS) return broken(wrong);
        const FakeStream& recorded = fake().at(stream);
        if (recorded.device >= 0 && recorded.device != real(event).device) return CUDA_ERROR_INVALID_HANDLE;
        real(event).recorded = recorded.last;
        return CUDA_SUCCESS;
    }
    static CUresult event_query(CUevent event) {
        Lock lock(fake().mutex_);
        if (!has_context()) return CUDA_ERROR_INVALID_CONTEXT;
        fake().block_while(lock, fake().query_blocks);
        ++fake().counts_.queries;
        if (fake().query_fails) return CUDA_ERROR_DEVICE_UNAVAILABLE;
        if (fake().ends_capture()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        const auto task = real(event).recorded;
        if (task == nullptr || FakeGpu::settle(*task)) return CUDA_SUCCESS;
        fake().block_while(lock, fake().answers_late);
        return CUDA_ERROR_NOT_READY;
    }
    static CUresult event_destroy(CUevent event) {
        const Lock lock(fake().mutex_);
        if (!has_context()) return CUDA_ERROR_INVALID_CONTEXT;
        --fake().counts_.events;
        delete &real(event);
        return CUDA_SUCCESS;
    }
    static CUresult allocate(CUdeviceptr* memory, std::size_t bytes) {
        const Lock lock(fake().mutex_);
        if (!has_context()) return CUDA_ERROR_INVALID_CONTEXT;
        if (fake().refuses_memory) return CUDA_ERROR_OUT_OF_MEMORY;
        if (fake().ends_capture()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        ++fake().counts_.blocks;
        void* const block = std::malloc(bytes);
        fake().devices_of_blocks_[block] = contexts_of_thread.back();
        std::memset(block, 0xAB, bytes);  // device memory starts as anything
        *memory = detail::device_pointer(block);
        return CUDA_SUCCESS;
    }
    static CUresult free(CUdeviceptr memory) {
        Lock lock(fake().mutex_);
        if (!has_context()) return CUDA_ERROR_INVALID_CONTEXT;
        fake().block_while(lock, fake().free_blocks);
        if (fake().ends_capture()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        --fake().counts_.blocks;
        if (fake().devices_of_blocks_[memory_at(memory)] != contexts_of_thread.back()) ++fake().counts_.frees_elsewhere;
        std::free(memory_at(memory));
        return CUDA_SUCCESS;
    }
    static CUresult allocate_pinned(void** memory, std::size_t bytes, unsigned) {
        const Lock lock(fake().mutex_);
        if (!has_context()) return CUDA_ERROR_INVALID_CONTEXT;
        if (fake().refuses_memory) return CUDA_ERROR_OUT_OF_MEMORY;
        if (fake().ends_capture()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        ++fake().counts_.pinned;
        *memory = std::malloc(bytes);
        fake().pinned_.insert(*memory);
        return CUDA_SUCCESS;
    }
    static CUresult free_pinned(void* memory) {
        const Lock lock(fake().mutex_);
        if (!has_context()) return CUDA_ERROR_INVALID_CONTEXT;
        if (fake().ends_capture()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        --fake().counts_.pinned;
        fake().pinned_.erase(memory);
        std::free(memory);
        return CUDA_SUCCESS;
    }
    static CUresult memset_async(CUdeviceptr memory, unsigned char value, std::size_t bytes, CUstream stream) {
        const Lock lock(fake().mutex_);
        if (const CUresult wrong = fake().usable(stream); wrong != CUDA_SUCCESS) return wrong;
        fake().put(stream, [=] { return std::memset(memory_at(memory), value, bytes) != nullptr; });
        return CUDA_SUCCESS;
    }
    static CUresult memcpy_async(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
        const Lock lock(fake().mutex_);
        if (const CUresult wrong = fake().usable(stream); wrong != CUDA_SUCCESS) return wrong;
        if (fake().refuses_copies) return CUDA_ERROR_INVALID_HANDLE;
        ++fake().counts_.copies;
        fake().put(stream, [=] { return std::memcpy(memory_at(to), memory_at(from), bytes) != nullptr; });
        return CUDA_SUCCESS;
    }
    static CUresult exchange_capture_mode(CUstreamCaptureMode* mode) {
        std::swap(*mode, capture_mode);
        return CUDA_SUCCESS;
    }
    static CUresult stream_is_capturing(CUstream stream, CUstreamCaptureStatus* status) {
        const Lock lock(fake().mutex_);
        if (const CUresult wrong = fake().usable(stream); wrong != CUDA_SUCCESS) return wrong;
        *status = fake().at(stream).captured ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
        return CUDA_SUCCESS;
    }
    /// Like the driver it succeeds for memory that CUDA does not know, with zeros.
    static CUresult pointer_attributes(unsigned count, CUpointer_attribute* attributes, void** values,
                                       CUdeviceptr pointer) {
        const Lock lock(fake().mutex_);
        // Memory is of the device whose context a check of device memory has made current. One of host memory has none.
        const auto other = fake().other_memory.find(memory_at(pointer));
        const int otherwise = has_context() ? contexts_of_thread.back() : -1;
        const int home = other == fake().other_memory.end() ? otherwise : other->second;
        for (unsigned i = 0; i < count; ++i) {
            const bool is_type = attributes[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
            const bool is_home = attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
            const int value = is_type ? int{CU_MEMORYTYPE_DEVICE} : is_home ? home : 0;  // not managed
            *static_cast<int*>(values[i]) = home < 0 ? 0 : value;
        }
        return CUDA_SUCCESS;
    }
    static CUresult error_name(CUresult error, const char** text) {
        *text = error == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR";
        return CUDA_SUCCESS;
    }
    static CUresult error_text(CUresult, const char** text) { return *text = "as scripted", CUDA_SUCCESS; }
};

FakeGpu::FakeGpu() {
    assert(the_fake == nullptr);
    the_fake = this;
    set_current(std::nullopt);
}

FakeGpu::~FakeGpu() {
    std::unique_lock lock(mutex_);
    leaving_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return blocked_ == 0 && counts_.retained == 0; });
    for (void* const left : pinned_) std::free(left);
    the_fake = nullptr;
}

FakeGpu& FakeGpu::current() { return *the_fake; }

void FakeGpu::set_current(std::optional<int> device) {
    contexts_of_thread.clear();
    if (device) contexts_of_thread.push_back(*device);
}

std::optional<int> FakeGpu::current_device() {
    return contexts_of_thread.empty() ? std::nullopt : std::optional(contexts_of_thread.back());
}

detail::GpuApi FakeGpu::api(int nccl_version) const {
    detail::GpuApi api;
    api.nccl_version = nccl_version;
    fill(api.cuda);
    fill(api.nccl);
    return api;
}

void FakeGpu::fill(CudaApi& cuda) {
#define DDP_REFUSE(member, ...) refuse(cuda.member);
    DDP_CUDA_FUNCTIONS(DDP_REFUSE)
#undef DDP_REFUSE
    cuda.init = FakeCudaCalls::init;
    cuda.device_get_count = FakeCudaCalls::device_get_count;
    cuda.device_get = FakeCudaCalls::device_get;
    cuda.device_get_uuid = FakeCudaCalls::device_get_uuid;
    cuda.device_get_attribute = FakeCudaCalls::device_get_attribute;
    cuda.device_primary_ctx_retain = FakeCudaCalls::retain;
    cuda.device_primary_ctx_release = FakeCudaCalls::release;
    cuda.ctx_push_current = FakeCudaCalls::push;
    cuda.ctx_pop_current = FakeCudaCalls::pop;
    cuda.ctx_get_stream_priority_range = [](int* lowest, int* highest) {
        *lowest = 0;
        *highest = -5;
        return CUDA_SUCCESS;
    };
    cuda.stream_create_with_priority = FakeCudaCalls::stream_create;
    cuda.stream_destroy = FakeCudaCalls::stream_destroy;
    cuda.stream_wait_event = FakeCudaCalls::stream_wait_event;
    cuda.stream_is_capturing = FakeCudaCalls::stream_is_capturing;
    cuda.thread_exchange_stream_capture_mode = FakeCudaCalls::exchange_capture_mode;
    cuda.event_create = FakeCudaCalls::event_create;
    cuda.event_record = FakeCudaCalls::event_record;
    cuda.event_query = FakeCudaCalls::event_query;
    cuda.event_destroy = FakeCudaCalls::event_destroy;
    cuda.mem_alloc = FakeCudaCalls::allocate;
    cuda.mem_free = FakeCudaCalls::free;
    cuda.mem_host_alloc = FakeCudaCalls::allocate_pinned;
    cuda.mem_free_host = FakeCudaCalls::free_pinned;
    cuda.memset_d8_async = FakeCudaCalls::memset_async;
    cuda.memcpy_async = FakeCudaCalls::memcpy_async;
    cuda.pointer_get_attributes = FakeCudaCalls::pointer_attributes;
    cuda.get_error_name = FakeCudaCalls::error_name;
    cuda.get_error_string = FakeCudaCalls::error_text;
}

void FakeGpu::let_go() {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
    changed_.notify_all();
}

void FakeGpu::answer() {
    const std::lock_guard lock(mutex_);
    answers_late = false;
    changed_.notify_all();
}

int FakeGpu::blocked() {
    const std::lock_guard lock(mutex_);
    return blocked_;
}

void FakeGpu::freeze(std::set<int> ranks) {
    const std::lock_guard lock(mutex_);
    frozen_ranks = std::move(ranks);
}

void FakeGpu::complete_inits() {
    const std::lock_guard lock(mutex_);
    init_never_completes = false;
    changed_.notify_all();
}

std::vector<std::string> FakeGpu::launch_order() {
    const std::lock_guard lock(mutex_);
    return launch_order_;
}

std::set<std::thread::id> FakeGpu::launch_threads() {
    const std::lock_guard lock(mutex_);
    return launch_threads_;
}

FakeGpu::Counts FakeGpu::counts() {
    const std::lock_guard lock(mutex_);
    return counts_;
}

CUstream FakeGpu::make_stream(int device, bool blocking) {
    const std::lock_guard lock(mutex_);
    own_streams_.push_back(std::make_unique<FakeStream>());
    own_streams_.back()->device = device;
    own_streams_.back()->blocking = blocking;
    return reinterpret_cast<CUstream>(own_streams_.back().get());
}

std::shared_ptr<std::atomic<bool>> FakeGpu::close_gate(CUstream stream) {
    const std::lock_guard lock(mutex_);
    auto open = std::make_shared<std::atomic<bool>>(false);
    put(stream, [open] { return open->load(); });
    return open;
}

void FakeGpu::copy(void* to, const void* from, std::size_t bytes, CUstream stream) {
    const std::lock_guard lock(mutex_);
    put(stream, [=] { return std::memcpy(to, from, bytes) != nullptr; });
}

bool FakeGpu::advance(CUstream stream) {
    const std::lock_guard lock(mutex_);
    const auto last = at(stream).last;
    return last == nullptr || settle(*last);
}

void FakeGpu::capture(CUstream stream, bool captured) {
    const std::lock_guard lock(mutex_);
    at(stream).captured = captured;
}

bool FakeGpu::ends_capture() {
    if (!capturing || capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
    ++counts_.broken_captures;
    return true;
}

CUresult FakeGpu::usable(CUstream stream) const {
    const auto current = current_device();
    if (!current) return CUDA_ERROR_INVALID_CONTEXT;
    const bool captured = std::ranges::any_of(own_streams_, [&](const auto& own) {
        return own->blocking && own->captured && (own->device < 0 || own->device == *current);
    });
    return stream == nullptr && captured ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
}

std::set<int> FakeGpu::contexts() {
    const std::lock_guard lock(mutex_);
    return contexts_;
}

FakeStream& FakeGpu::at(CUstream stream) {
    return stream == nullptr ? default_streams_[current_device().value_or(0)] : *reinterpret_cast<FakeStream*>(stream);
}

std::shared_ptr<FakeTask> FakeGpu::put(CUstream stream, std::function<bool()> run) {
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
