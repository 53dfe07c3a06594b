#pragma once
// GroupDevice: owns one group's stream and pool of events on its CUDA device. Shared by the backend and its works,
// which may outlive it. Any thread.

#include <string_view>
#include <vector>

#include "common/mutex.hpp"
#include "worker_lib/src/nccl/device/api.hpp"

namespace ddp::detail {

/// Throws Error{System} "what: CUDA's text" for an error, and clears it in the CUDA runtime (see query_event()).
void check_cuda(const CudaApi& cuda, cudaError_t error, std::string_view what);

/// Calls cudaEventQuery, and clears a cudaErrorNotReady from this thread's last error: programs look there for errors
/// of their own kernels.
[[nodiscard]] cudaError_t query_event(const CudaApi& cuda, cudaEvent_t event);

/// Makes `device` the calling thread's current one while the scope lasts. A thread that had no current device has none
/// afterwards: cudaSetDevice(0) would make a context on device 0, which takes device memory, for a program that uses
/// another device.
class DeviceScope {
public:
    /// Throws Error{System} when the device cannot be made current.
    DeviceScope(const CudaApi& cuda, int device);
    ~DeviceScope();
    DeviceScope(const DeviceScope&) = delete;
    DeviceScope& operator=(const DeviceScope&) = delete;

private:
    const CudaApi& cuda_;
    bool switched_ = false;
    CUcontext previous_ = nullptr;  // the thread's, if switched_; null: none
};

/// Prepares a thread of the backend: `device` becomes its current one, and its calls do not disturb graph captures of
/// other threads. (By default an event query on any thread ends their captures.)
[[nodiscard]] cudaError_t begin_thread(const CudaApi& cuda, int device);

class GroupDevice {
public:
    /// Throws Error{System} when the device cannot be used.
    GroupDevice(const CudaApi& cuda, int index);
    ~GroupDevice();
    GroupDevice(const GroupDevice&) = delete;
    GroupDevice& operator=(const GroupDevice&) = delete;

    [[nodiscard]] const CudaApi& cuda() const { return cuda_; }
    [[nodiscard]] int index() const { return index_; }
    /// Returns the stream on which all operations of the group run, in the order of their calls.
    [[nodiscard]] cudaStream_t stream() const { return stream_; }

    /// Returns an event without timing. Give it back with release(), also after the backend's end.
    [[nodiscard]] cudaEvent_t acquire_event() EXCLUDES(mutex_);
    void release(cudaEvent_t event) EXCLUDES(mutex_);

private:
    const CudaApi cuda_;
    const int index_;
    cudaStream_t stream_ = nullptr;
    ddprun::Mutex mutex_;
    std::vector<cudaEvent_t> idle_events_ GUARDED_BY(mutex_);
};

}  // namespace ddp::detail
