#include "worker_lib/src/nccl/group_device.hpp"

#include <fmt/format.h>

#include "ddp/error.hpp"

namespace ddp::detail {

void check_cuda(const CudaApi& cuda, cudaError_t error, std::string_view what) {
    if (error != cudaSuccess) throw Error(ErrorCode::System, fmt::format("{}: {}", what, cuda.get_error_string(error)));
}

cudaError_t query_event(const CudaApi& cuda, cudaEvent_t event) {
    const cudaError_t state = cuda.event_query(event);
    if (state == cudaErrorNotReady) (void)cuda.get_last_error();
    return state;
}

DeviceScope::DeviceScope(const CudaApi& cuda, int device) : cuda_(cuda), device_(device), previous_(device) {
    check_cuda(cuda_, cuda_.get_device(&previous_), "cudaGetDevice");
    if (previous_ != device_) check_cuda(cuda_, cuda_.set_device(device_), fmt::format("cudaSetDevice({})", device_));
}

DeviceScope::~DeviceScope() {
    // It was current a moment ago; if it no longer can be, the caller's next CUDA call says so.
    if (previous_ != device_) (void)cuda_.set_device(previous_);
}

GroupDevice::GroupDevice(const CudaApi& cuda, int index) : cuda_(cuda), index_(index) {
    const DeviceScope scope(cuda_, index_);
    // Non-blocking: the default stream does not wait for it, nor it for the default stream.
    check_cuda(cuda_, cuda_.stream_create_with_flags(&stream_, cudaStreamNonBlocking),
               fmt::format("cudaStreamCreate on device {}", index_));
}

GroupDevice::~GroupDevice() {
    // Neither call waits for the device. Failures cannot matter: at exit the driver may have gone first.
    for (cudaEvent_t event : idle_events_) (void)cuda_.event_destroy(event);
    (void)cuda_.stream_destroy(stream_);
}

cudaEvent_t GroupDevice::acquire_event() {
    {
        const std::lock_guard lock(mutex_);
        if (!idle_events_.empty()) {
            cudaEvent_t event = idle_events_.back();
            idle_events_.pop_back();
            return event;
        }
    }
    const DeviceScope scope(cuda_, index_);
    cudaEvent_t event = nullptr;
    check_cuda(cuda_, cuda_.event_create_with_flags(&event, cudaEventDisableTiming), "cudaEventCreate");
    return event;
}

void GroupDevice::release(cudaEvent_t event) {
    const std::lock_guard lock(mutex_);
    idle_events_.push_back(event);
}

}  // namespace ddp::detail
