#pragma once
// DeviceCopier: copies between host and device on a stream of its own, one copy at a time, each with a deadline. It
// owns pinned host memory, which the device reads and writes while the host goes on. Made by DeviceAccess, by the
// Checkpointer and by verify_parameters. One thread at a time. Its calls do not disturb graph captures of other
// threads.

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/clock.hpp"
#include "ddp/types.hpp"
#include "worker_lib/src/cuda/group_device.hpp"

namespace ddp::detail {

/// Makes the device current for calls of CUDA. Without the relaxed mode, queries and allocations end a capture that
/// another thread of the program has begun.
class CallScope {
public:
    explicit CallScope(const GroupDevice& device) : cuda_(device.cuda()), device_(device) { exchange(); }
    ~CallScope() { exchange(); }
    CallScope(const CallScope&) = delete;
    CallScope& operator=(const CallScope&) = delete;

private:
    void exchange() { (void)cuda_.thread_exchange_stream_capture_mode(&mode_); }

    const CudaApi& cuda_;
    const DeviceScope device_;
    CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

class DeviceCopier {
public:
    /// Throws Error{System} when the device cannot be used.
    DeviceCopier(const CudaApi& cuda, int device);
    /// Leaves its memory alone if a copy has not ended, because the device may still write it.
    ~DeviceCopier();
    DeviceCopier(const DeviceCopier&) = delete;
    DeviceCopier& operator=(const DeviceCopier&) = delete;

    /// Returns the stream of the copies. It has the lowest priority.
    [[nodiscard]] Stream stream() const { return {device_->stream()}; }
    /// Returns pinned memory, which lives as long as this object. Throws Error{System} when there is no room.
    [[nodiscard]] std::span<std::byte> allocate_pinned(std::size_t bytes);

    /// Returns zeroed memory of the device, which lives as long as this object. The zeros are work on stream(). Throws
    /// Error{System} when there is no room.
    [[nodiscard]] CUdeviceptr allocate_zeroed(std::size_t bytes);

    /// Makes later copies wait for the current work on `other`. Throws Error{InvalidArgument} for a stream of another
    /// device, Error{System} for any other failure.
    void wait_for(Stream other);
    /// Starts a copy in either direction. It runs beside the host if the memory there is pinned. Both sides belong to
    /// the device until wait() has returned. Throws Error{System}.
    void start(void* to, const void* from, std::size_t bytes);
    /// Marks the end of the current work on stream(), as start() does for its copy. Throws Error{System}.
    void mark();
    /// Returns whether the device has passed the last mark. Throws Error{System}.
    [[nodiscard]] bool passed();
    /// Waits until it has. Throws Error{System}, also after `timeout`: the copy goes on then, so that this object may
    /// only be destroyed.
    void wait(ddprun::Duration timeout);

private:
    const std::shared_ptr<GroupDevice> device_;  ///< shared with the thread that frees the memory
    const CUevent mark_;
    const CUevent other_done_;  ///< recorded on the stream that wait_for() gets
    std::size_t bytes_ = 0;     ///< of the last copy
    std::vector<void*> pinned_;
    std::vector<CUdeviceptr> on_device_;
};

}  // namespace ddp::detail
