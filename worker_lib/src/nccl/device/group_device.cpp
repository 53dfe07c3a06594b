#include "worker_lib/src/nccl/device/group_device.hpp"

#include <fmt/format.h>

#include "ddp/error.hpp"

namespace ddp::detail {

void check_cuda(const CudaApi& cuda, cudaError_t error, std::string_view what) {
    if (error == cudaSuccess) return;
    (void)cuda.get_last_error();
    throw Error(ErrorCode::System, fmt::format("{}: {}", what, cuda.get_error_string(error)));
}

cudaError_t query_event(const CudaApi& cuda, cudaEvent_t event) {
    const cudaError_t state = cuda.event_query(event);
    if (state == cudaErrorNotReady) (void)cuda.get_last_error();
    return state;
}

DeviceScope::DeviceScope(const CudaApi& cuda, int device) : cuda_(cuda) {
    int current = device;
    check_cuda(cuda_, cuda_.get_device(&current), "cudaGetDevice");
    if (current == device) return;
    if (const CUresult got = cuda_.get_context(&previous_); got != CUDA_SUCCESS)
        throw Error(ErrorCode::System, fmt::format("cuCtxGetCurrent: error {}", static_cast<int>(got)));
    check_cuda(cuda_, cuda_.set_device(device), fmt::format("cudaSetDevice({})", device));
    switched_ = true;
}

DeviceScope::~DeviceScope() {
    // It was current before. If it no longer can be, the caller's next CUDA call reports that.
    if (switched_) (void)cuda_.set_context(previous_);
}

cudaError_t begin_thread(const CudaApi& cuda, int device) {
    const cudaError_t error = cuda.set_device(device);
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    if (error == cudaSuccess)
        (void)cuda.exchange_capture_mode(&mode);  // after cudaSetDevice, else it would start device 0
    return error;
}

GroupDevice::GroupDevice(const CudaApi& cuda, int index) : cuda_(cuda), index_(index) {
    const DeviceScope scope(cuda_, index_);
    // Non-blocking: the default stream does not wait for it, nor it for the default stream.
    check_cuda(cuda_, cuda_.stream_create_with_flags(&stream_, cudaStreamNonBlocking),
               fmt::format("cudaStreamCreate on device {}", index_));
}

GroupDevice::~GroupDevice() {
    // Neither call waits for the device. Failures do not matter: at exit the driver may have been unloaded first.
    try {
        const DeviceScope scope(cuda_, index_);  // the last owner may be a work on any thread
        for (cudaEvent_t event : idle_events_) (void)cuda_.event_destroy(event);
        (void)cuda_.stream_destroy(stream_);
    } catch (const Error&) {
    }
}

cudaEvent_t GroupDevice::acquire_event() {
    {
        const ddprun::Lock lock(mutex_);
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
    const ddprun::Lock lock(mutex_);
    idle_events_.push_back(event);
}

}  // namespace ddp::detail
