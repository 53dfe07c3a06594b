// The calls of the fake driver that concern devices, contexts, streams and events.

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <utility>

#include "tests/fake_gpu/call.hpp"
#include "tests/fake_gpu/captures.hpp"

using namespace ddp::fake;

namespace {

constexpr int kLowestPriority = 0;
constexpr int kHighestPriority = -5;

/// An event. Never deleted: a handle must stay checkable.
struct Event {
    static constexpr std::uint64_t kMagic = 0x746e657665000000;
    const std::uint64_t magic = kMagic;
    Device* const device;
    std::atomic<bool> destroyed = false;  // relaxed
    std::mutex mutex;                     // of host threads only
    bool recorded = false;                // once, or more
    CapturedMark captured = {};           // if the last record was in a capture
    Completion completion;                // of the last record
};

/// Keeps all events reachable for LeakSanitizer.
struct Events {
    std::mutex mutex;
    std::vector<Event*> made;
};
Events& events() {
    static auto& all = *new Events;
    return all;
}

/// Returns nullptr, and reports it, if the handle is not one of a live event.
Event* event_of(CUevent handle) {
    auto* const event = reinterpret_cast<Event*>(handle);
    if (event == nullptr || event->magic != Event::kMagic) {
        report_misuse("the handle of an event is invalid");
        return nullptr;
    }
    if (event->destroyed.load(std::memory_order_relaxed)) {
        report_misuse("an event is used after it was destroyed");
        return nullptr;
    }
    return event;
}

Device* device_at(CUdevice ordinal) {
    const auto index = static_cast<std::size_t>(ordinal);
    return ordinal < 0 || index >= Device::all().size() ? nullptr : Device::all()[index].get();
}

int number_from_environment(const char* variable, int otherwise) {
    const char* const text = std::getenv(variable);
    return text == nullptr ? otherwise : std::atoi(text);
}

}  // namespace

DDP_FAKE_EXPORT CUresult cuInit(unsigned) {
    return call("cuInit", Needs::Nothing, [] {
        if (Device::all().empty()) return CUDA_ERROR_NO_DEVICE;
        start_driver();
        return CUDA_SUCCESS;
    });
}

DDP_FAKE_EXPORT CUresult cuDriverGetVersion(int* version) {
    return call("cuDriverGetVersion", Needs::Nothing, [&] {
        *version = number_from_environment("DDP_FAKE_CUDA_VERSION", 13000);
        return CUDA_SUCCESS;
    });
}

DDP_FAKE_EXPORT CUresult cuDeviceGetCount(int* count) {
    return call("cuDeviceGetCount", Needs::Driver, [&] {
        *count = static_cast<int>(Device::all().size());
        return CUDA_SUCCESS;
    });
}

DDP_FAKE_EXPORT CUresult cuDeviceGet(CUdevice* device, int ordinal) {
    return call("cuDeviceGet", Needs::Driver, [&] {
        if (device_at(ordinal) == nullptr) return kInvalidDevice;
        *device = ordinal;
        return CUDA_SUCCESS;
    });
}

DDP_FAKE_EXPORT CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
    return call("cuDeviceGetAttribute", Needs::Driver, [&] {
        if (device_at(device) == nullptr) return kInvalidDevice;
        switch (attribute) {
            case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 8; break;
            case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
                *value = 1 + device_at(device)->number() / number_from_environment("DDP_FAKE_CUDA_SLICES", 1);
                break;
            case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID:
            case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID: *value = 0; break;
            default: return kInvalidValue;
        }
        return CUDA_SUCCESS;
    });
}

DDP_FAKE_EXPORT CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
    return call("cuDeviceGetUuid", Needs::Driver, [&] {
        if (device_at(device) == nullptr) return kInvalidDevice;
        *uuid = {};
        uuid->bytes[15] = static_cast<char>(device_at(device)->number());
        return CUDA_SUCCESS;
    });
}

DDP_FAKE_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
    return call("cuDevicePrimaryCtxRetain", Needs::Driver, [&] {
        Device* const retained = device_at(device);
        if (retained == nullptr) return kInvalidDevice;
        retained->retain();
        *context = context_of(retained);
        return CUDA_SUCCESS;
    });
}

DDP_FAKE_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    return call("cuDevicePrimaryCtxRelease", Needs::Driver, [&] {
        if (device_at(device) == nullptr) return kInvalidDevice;
        return device_at(device)->release() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
    });
}

DDP_FAKE_EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
    return call("cuDevicePrimaryCtxGetState", Needs::Driver, [&] {
        if (device_at(device) == nullptr) return kInvalidDevice;
        *flags = 0;
        *active = device_at(device)->active() ? 1 : 0;
        return CUDA_SUCCESS;
    });
}

DDP_FAKE_EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context) {
    return call("cuCtxPushCurrent", Needs::Driver, [&] {
        Device* const device = device_of(context);
        if (device == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
        if (!device->active()) return kContextIsDestroyed;
        push_context(device);
        return CUDA_SUCCESS;
    });
}

DDP_FAKE_EXPORT CUresult cuCtxPopCurrent_v2(CUcontext* context) {
    return call("cuCtxPopCurrent", Needs::Driver, [&] {
        Device* const top = pop_context();
        if (top == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
        if (context != nullptr) *context = context_of(top);
        return CUDA_SUCCESS;
    });
}

DDP_FAKE_EXPORT CUresult cuCtxGetCurrent(CUcontext* context) {
    return call("cuCtxGetCurrent", Needs::Driver, [&] {
        *context = current_device() == nullptr ? nullptr : context_of(current_device());
        return CUDA_SUCCESS;
    });
}

/// Replaces the top of the thread's stack; null: takes it away.
DDP_FAKE_EXPORT CUresult cuCtxSetCurrent(CUcontext context) {
    return call("cuCtxSetCurrent", Needs::Driver, [&] {
        Device* const device = device_of(context);
        if (context != nullptr && device == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
        pop_context();
        if (device != nullptr) push_context(device);
        return CUDA_SUCCESS;
    });
}

DDP_FAKE_EXPORT CUresult cuCtxGetStreamPriorityRange(int* lowest, int* highest) {
    return call("cuCtxGetStreamPriorityRange", Needs::Context, [&] {
        if (lowest != nullptr) *lowest = kLowestPriority;
        if (highest != nullptr) *highest = kHighestPriority;
        return CUDA_SUCCESS;
    });
}

/// A priority has no effect, and one out of the range is not an error: the driver takes the nearest.
DDP_FAKE_EXPORT CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int) {
    return call("cuStreamCreateWithPriority", Needs::Context, [&] {
        if ((flags & ~unsigned{CU_STREAM_NON_BLOCKING}) != 0) return kInvalidValue;
        *stream = reinterpret_cast<CUstream>(&current_device()->create_stream(flags != CU_STREAM_NON_BLOCKING));
        return CUDA_SUCCESS;
    });
}

DDP_FAKE_EXPORT CUresult cuStreamDestroy_v2(CUstream stream) {
    return call("cuStreamDestroy", Needs::Context, [&] {
        if (reinterpret_cast<std::uintptr_t>(stream) <= 2) return CUDA_ERROR_INVALID_HANDLE;
        const auto [target, error] = target_of(stream);
        if (target == nullptr) return error;
        target->device().destroy_stream(*target);
        return CUDA_SUCCESS;
    });
}

DDP_FAKE_EXPORT CUresult cuStreamSynchronize(CUstream stream) {
    return call("cuStreamSynchronize", Needs::Context, [&] {
        if (Captures::instance().broken_by_unsafe_call()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        const auto [target, error] = target_of(stream);
        if (target == nullptr) return error;
        target->device().record(*target).wait();
        return CUDA_SUCCESS;
    });
}

DDP_FAKE_EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent handle, unsigned) {
    return call("cuStreamWaitEvent", Needs::Context, [&] {
        const auto [target, error] = target_of(stream);
        if (target == nullptr) return error;
        Event* const event = event_of(handle);
        if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        Completion completion;
        CapturedMark mark;
        {
            const std::lock_guard lock(event->mutex);
            if (!event->recorded)
                report_misuse("a stream waits for an event that was never recorded: it does not wait");
            completion = event->completion;
            mark = event->captured;
        }
        if (mark.capture != 0 && Captures::instance().add_wait(*target, mark)) return CUDA_SUCCESS;
        if (target->capture.load(std::memory_order_relaxed) == Stream::Capture::Active) {
            Captures::instance().break_capture(*target);
            return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
        }
        if (mark.capture != 0) return kCapturedEvent;  // of a capture that has ended
        return enqueue(stream, [completion] { completion.wait(); });
    });
}

DDP_FAKE_EXPORT CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
    return call("cuStreamIsCapturing", Needs::Context, [&] {
        const auto [target, error] = target_of(stream);
        if (error == kCaptureInvalidated) {
            *status = CUstreamCaptureStatus{2};
            return CUDA_SUCCESS;
        }
        if (target == nullptr) return error;
        const bool captured = target->capture.load(std::memory_order_relaxed) == Stream::Capture::Active;
        *status = captured ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
        return CUDA_SUCCESS;
    });
}

DDP_FAKE_EXPORT CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
    return call("cuThreadExchangeStreamCaptureMode", Needs::Driver, [&] {
        *mode = Captures::exchange_mode(*mode);
        return CUDA_SUCCESS;
    });
}

DDP_FAKE_EXPORT CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
    return call("cuStreamBeginCapture", Needs::Context, [&] {
        if (reinterpret_cast<std::uintptr_t>(stream) <= 2) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        const auto [target, error] = target_of(stream);
        if (target == nullptr) return error;
        if (target->capture.load(std::memory_order_relaxed) != Stream::Capture::None) return kInvalidValue;
        Captures::instance().begin(*target, mode);
        return CUDA_SUCCESS;
    });
}

DDP_FAKE_EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
    return call("cuStreamEndCapture", Needs::Context, [&] {
        const auto [target, error] = target_of(stream);
        if (target == nullptr && error != kCaptureInvalidated) return error;
        *graph = nullptr;
        CUresult result = CUDA_SUCCESS;
        auto made = Captures::instance().end(*reinterpret_cast<Stream*>(stream), result);
        if (made != nullptr) *graph = reinterpret_cast<CUgraph>(new std::shared_ptr<const Graph>(std::move(made)));
        return result;
    });
}

DDP_FAKE_EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec* instance, CUgraph graph, unsigned long long flags) {
    return call("cuGraphInstantiate", Needs::Context, [&] {
        if (graph == nullptr || (flags & ~8ULL) != 0) return kInvalidValue;
        const auto& made = *reinterpret_cast<const std::shared_ptr<const Graph>*>(graph);
        *instance = reinterpret_cast<CUgraphExec>(new GraphInstance(made));
        return CUDA_SUCCESS;
    });
}

DDP_FAKE_EXPORT CUresult cuGraphLaunch(CUgraphExec instance, CUstream stream) {
    return call("cuGraphLaunch", Needs::Context, [&] {
        const auto [target, error] = target_of(stream);
        if (target == nullptr) return error;
        if (instance == nullptr) return kInvalidValue;
        if (target->capture.load(std::memory_order_relaxed) != Stream::Capture::None) return CUDA_ERROR_NOT_SUPPORTED;
        reinterpret_cast<GraphInstance*>(instance)->launch(*target);
        return CUDA_SUCCESS;
    });
}

DDP_FAKE_EXPORT CUresult cuGraphExecDestroy(CUgraphExec instance) {
    return call("cuGraphExecDestroy", Needs::Context, [&] {
        if (instance == nullptr) return kInvalidValue;
        GraphInstance::destroy(std::unique_ptr<GraphInstance>(reinterpret_cast<GraphInstance*>(instance)));
        return CUDA_SUCCESS;
    });
}

DDP_FAKE_EXPORT CUresult cuGraphDestroy(CUgraph graph) {
    return call("cuGraphDestroy", Needs::Context, [&] {
        if (graph == nullptr) return kInvalidValue;
        delete reinterpret_cast<std::shared_ptr<const Graph>*>(graph);
        return CUDA_SUCCESS;
    });
}

DDP_FAKE_EXPORT CUresult cuEventCreate(CUevent* event, unsigned) {
    return call("cuEventCreate", Needs::Context, [&] {
        auto* const made = new Event{.device = current_device()};
        *event = reinterpret_cast<CUevent>(made);
        const std::lock_guard lock(events().mutex);
        events().made.push_back(made);
        return CUDA_SUCCESS;
    });
}

DDP_FAKE_EXPORT CUresult cuEventRecord(CUevent handle, CUstream stream) {
    return call("cuEventRecord", Needs::Context, [&] {
        const auto [target, error] = target_of(stream);
        if (target == nullptr) return error;
        Event* const event = event_of(handle);
        if (event == nullptr || event->device != &target->device()) return CUDA_ERROR_INVALID_HANDLE;
        const bool captured = target->capture.load(std::memory_order_relaxed) == Stream::Capture::Active;
        const auto mark = captured ? Captures::instance().add_mark(*target) : CapturedMark();
        if (!mark) return kCaptureInvalidated;
        Completion completion = captured ? Completion() : target->device().record(*target);
        const std::lock_guard lock(event->mutex);
        event->recorded = true;
        event->captured = *mark;
        event->completion = std::move(completion);
        return CUDA_SUCCESS;
    });
}

DDP_FAKE_EXPORT CUresult cuEventQuery(CUevent handle) {
    return call("cuEventQuery", Needs::Context, [&] {
        Event* const event = event_of(handle);
        if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        if (Captures::instance().broken_by_unsafe_call()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        const std::lock_guard lock(event->mutex);
        if (event->captured.capture != 0) return kCapturedEvent;
        return event->completion.completed() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    });
}

DDP_FAKE_EXPORT CUresult cuEventDestroy_v2(CUevent handle) {
    return call("cuEventDestroy", Needs::Context, [&] {
        Event* const event = event_of(handle);
        if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        event->destroyed.store(true, std::memory_order_relaxed);
        const std::lock_guard lock(event->mutex);
        event->completion = {};
        return CUDA_SUCCESS;
    });
}

namespace {

struct ErrorText {
    CUresult error;
    const char* name;
    const char* text;
};
constexpr ErrorText kErrors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {kInvalidValue, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {kNotInitialized, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_DEVICE_UNAVAILABLE, "CUDA_ERROR_DEVICE_UNAVAILABLE",
     "CUDA-capable device(s) is/are busy or unavailable"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {kInvalidDevice, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUresult{214}, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {kNotFound, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUresult{700}, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {kContextIsDestroyed, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {kAlreadyRegistered, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
     "part or all of the memory is registered already"},
    {kNotRegistered, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
     "pointer does not correspond to a registered memory region"},
    {CUresult{719}, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {kNotPermitted, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "not permitted when stream is capturing"},
    {kCaptureInvalidated, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "a previous error has ended the capture"},
    {CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "dependency on uncaptured work in another stream"},
    {CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
     "would make the legacy stream depend on a capturing stream"},
    {CUresult{904}, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "unjoined work in another stream"},
    {CUresult{908}, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "the capture was begun by another thread"},
    {kCapturedEvent, "CUDA_ERROR_CAPTURED_EVENT", "not permitted on an event last recorded in a capturing stream"},
};

CUresult error_text(CUresult error, const char* ErrorText::*member, const char** text) {
    const auto* const found = std::ranges::find(kErrors, error, &ErrorText::error);
    *text = found == std::end(kErrors) ? nullptr : found->*member;
    return *text == nullptr ? kInvalidValue : CUDA_SUCCESS;
}

}  // namespace

DDP_FAKE_EXPORT CUresult cuGetErrorName(CUresult error, const char** text) {
    return call("cuGetErrorName", Needs::Nothing, [&] { return error_text(error, &ErrorText::name, text); });
}

DDP_FAKE_EXPORT CUresult cuGetErrorString(CUresult error, const char** text) {
    return call("cuGetErrorString", Needs::Nothing, [&] { return error_text(error, &ErrorText::text, text); });
}
