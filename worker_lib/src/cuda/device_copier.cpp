#include "worker_lib/src/cuda/device_copier.hpp"

#include <fmt/format.h>

#include <chrono>

#include "common/text/number.hpp"
#include "ddp/error.hpp"
#include "worker_lib/src/cuda/waiting.hpp"

namespace ddp::detail {

// GroupDevice's stream has priority 0, which is CUDA's lowest.
DeviceCopier::DeviceCopier(const CudaApi& cuda, int device)
    : device_(std::make_shared<GroupDevice>(cuda, device)),
      mark_(device_->acquire_event()),
      other_done_(device_->acquire_event()) {}

DeviceCopier::~DeviceCopier() {
    bool idle = false;
    try {
        idle = passed();
    } catch (const Error&) {  // the device is lost
    }
    device_->release(mark_);
    device_->release(other_done_);
    if (!idle || (pinned_.empty() && on_device_.empty())) return;
    free_bounded(device_, [pinned = pinned_, on_device = on_device_](const CudaApi& cuda) {
        for (void* const memory : pinned) (void)cuda.mem_free_host(memory);
        for (const CUdeviceptr memory : on_device) (void)cuda.mem_free(memory);
    });
}

std::span<std::byte> DeviceCopier::allocate_pinned(std::size_t bytes) {
    const CallScope scope(*device_);
    void* memory = nullptr;
    check_cuda(device_->cuda(), device_->cuda().mem_host_alloc(&memory, bytes, kHostAllocPortable),
               fmt::format("no room for {} bytes of pinned host memory", bytes));
    pinned_.push_back(memory);
    return {static_cast<std::byte*>(memory), bytes};
}

CUdeviceptr DeviceCopier::allocate_zeroed(std::size_t bytes) {
    const CallScope scope(*device_);
    CUdeviceptr memory = 0;
    check_cuda(device_->cuda(), device_->cuda().mem_alloc(&memory, bytes),
               fmt::format("no room for {} bytes of device memory", bytes));
    on_device_.push_back(memory);
    check_cuda(device_->cuda(), device_->cuda().memset_d8_async(memory, 0, bytes, device_->stream()),
               "cuMemsetD8Async");
    return memory;
}

void DeviceCopier::wait_for(Stream other) {
    const CallScope scope(*device_);
    const CUresult recorded = device_->cuda().event_record(other_done_, static_cast<CUstream>(other.handle));
    if (recorded == CUDA_ERROR_INVALID_HANDLE) {
        throw Error(ErrorCode::InvalidArgument, fmt::format("the stream belongs to another device; this rank uses CUDA "
                                                            "device {0}: call cudaSetDevice({0}) before you make it",
                                                            device_->index()));
    }
    check_cuda(device_->cuda(), recorded, "cuEventRecord on the caller's stream");
    // A wait sees the record before it, so one event serves all calls.
    check_cuda(device_->cuda(), device_->cuda().stream_wait_event(device_->stream(), other_done_, 0),
               "cuStreamWaitEvent");
}

void DeviceCopier::start(void* to, const void* from, std::size_t bytes) {
    bytes_ = bytes;
    {
        const CallScope scope(*device_);
        check_cuda(device_->cuda(),
                   device_->cuda().memcpy_async(device_pointer(to), device_pointer(from), bytes, device_->stream()),
                   "cuMemcpyAsync");
    }
    mark();
}

void DeviceCopier::mark() {
    const CallScope scope(*device_);
    check_cuda(device_->cuda(), device_->cuda().event_record(mark_, device_->stream()), "cuEventRecord");
}

bool DeviceCopier::passed() {
    const CallScope scope(*device_);
    const CUresult state = device_->cuda().event_query(mark_);
    if (state != CUDA_ERROR_NOT_READY) check_cuda(device_->cuda(), state, "cuEventQuery");
    return state == CUDA_SUCCESS;
}

void DeviceCopier::wait(ddprun::Duration timeout) {
    const auto limit = ddprun::Clock::now() + timeout;
    for (Backoff backoff; !passed(); backoff.pause()) {
        if (ddprun::Clock::now() < limit) continue;
        throw Error(ErrorCode::System,
                    fmt::format("a copy of {} bytes on CUDA device {}, or an operation queued before it, has not "
                                "finished in {}: see nvidia-smi, and set NCCL_DEBUG=INFO",
                                bytes_, device_->index(), ddprun::seconds_text(timeout)));
    }
}

}  // namespace ddp::detail
