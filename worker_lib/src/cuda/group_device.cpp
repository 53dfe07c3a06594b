#include "worker_lib/src/cuda/group_device.hpp"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "ddp/error.hpp"
#include "worker_lib/src/cuda/device_memory.hpp"
#include "worker_lib/src/cuda/waiting.hpp"

namespace ddp::detail {

PrimaryContext::PrimaryContext(const CudaApi& cuda, int index) : cuda_(cuda) {
    check_cuda(cuda_, cuda_.device_get(&device_, index), fmt::format("cuDeviceGet of CUDA device {}", index));
    check_cuda(cuda_, cuda_.device_primary_ctx_retain(&context_, device_),
               fmt::format("cuDevicePrimaryCtxRetain of CUDA device {}", index));
    begin_lookups(cuda_);
}

PrimaryContext::~PrimaryContext() {
    end_lookups();
    (void)cuda_.device_primary_ctx_release(device_);
}

CUresult PrimaryContext::begin_thread() const {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    (void)cuda_.thread_exchange_stream_capture_mode(&mode);
    return cuda_.ctx_push_current(context_);
}

GroupDevice::GroupDevice(const CudaApi& cuda, int index, StreamPriority priority)
    : cuda_(cuda), index_(index), context_(cuda_, index) {
    const DeviceScope scope(*this);
    int normal = 0;
    int highest = 0;
    if (priority == StreamPriority::kHighest)
        check_cuda(cuda_, cuda_.ctx_get_stream_priority_range(&normal, &highest),
                   fmt::format("cuCtxGetStreamPriorityRange on CUDA device {}", index_));
    // Non-blocking: the default stream does not wait for it, nor it for the default stream.
    check_cuda(cuda_, cuda_.stream_create_with_priority(&stream_, CU_STREAM_NON_BLOCKING, highest),
               fmt::format("cuStreamCreateWithPriority on CUDA device {}", index_));
}

GroupDevice::~GroupDevice() {
    // Neither call waits for the device. Failures do not matter: at exit the driver may have been unloaded first.
    try {
        const DeviceScope scope(*this);  // the last owner may be a work on any thread
        for (CUevent event : idle_events_) (void)cuda_.event_destroy(event);
        (void)cuda_.stream_destroy(stream_);
    } catch (const Error&) {
    }
}

CUevent GroupDevice::acquire_event() {
    {
        const ddprun::Lock lock(mutex_);
        if (!idle_events_.empty()) {
            CUevent event = idle_events_.back();
            idle_events_.pop_back();
            return event;
        }
    }
    const DeviceScope scope(*this);
    CUevent event = nullptr;
    check_cuda(cuda_, cuda_.event_create(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    return event;
}

void GroupDevice::release(CUevent event) {
    const ddprun::Lock lock(mutex_);
    idle_events_.push_back(event);
}

void free_bounded(const std::shared_ptr<GroupDevice>& device, std::function<void(const CudaApi&)> free) {
    constexpr auto kTimeout = std::chrono::seconds(10);
    auto work = [device, free = std::move(free)] {
        (void)device->begin_thread();
        free(device->cuda());
    };
    (void)run_bounded(std::move(work), ddprun::Clock::now() + kTimeout);
}

DeviceScope::DeviceScope(const GroupDevice& device) : cuda_(device.cuda()) {
    const CUresult pushed = cuda_.ctx_push_current(device.context());
    if (pushed == CUDA_SUCCESS) return;  // each gradient makes a scope: without the text of an error
    check_cuda(cuda_, pushed, fmt::format("cuCtxPushCurrent of CUDA device {}", device.index()));
}

DeviceScope::~DeviceScope() {
    CUcontext left = nullptr;
    (void)cuda_.ctx_pop_current(&left);  // only fails when the driver is gone
}

}  // namespace ddp::detail
