#pragma once
// GroupDevice: owns one group's stream and pool of events on its CUDA device, and the group's use of that device's
// primary context, which is also that of the CUDA runtime. Shared by the backend and its works, which may outlive it.
// Any thread.

#include <functional>
#include <memory>
#include <vector>

#include "common/mutex.hpp"
#include "worker_lib/src/cuda/driver.hpp"

namespace ddp::detail {

/// Keeps the primary context of a device alive, and device_holding() asking its driver.
class PrimaryContext {
public:
    /// `cuda` must outlive it. Throws Error{System} when the device cannot be used.
    PrimaryContext(const CudaApi& cuda, int index);
    ~PrimaryContext();
    PrimaryContext(const PrimaryContext&) = delete;
    PrimaryContext& operator=(const PrimaryContext&) = delete;
    [[nodiscard]] CUcontext get() const { return context_; }
    /// Prepares a new thread of the backend: the device is its current one until it ends, and its calls do not disturb
    /// graph captures of other threads. (By default an event query on any thread ends their captures.)
    [[nodiscard]] CUresult begin_thread() const;

private:
    const CudaApi& cuda_;
    CUdevice device_ = 0;
    CUcontext context_ = nullptr;
};

/// The priority of a stream: the device prefers blocks of kernels on streams of high priority.
enum class StreamPriority { kNormal, kHighest };

class GroupDevice {
public:
    /// Throws Error{System} when the device cannot be used.
    GroupDevice(const CudaApi& cuda, int index, StreamPriority priority = StreamPriority::kNormal);
    ~GroupDevice();
    GroupDevice(const GroupDevice&) = delete;
    GroupDevice& operator=(const GroupDevice&) = delete;

    [[nodiscard]] const CudaApi& cuda() const { return cuda_; }
    [[nodiscard]] int index() const { return index_; }
    [[nodiscard]] CUcontext context() const { return context_.get(); }
    /// Returns the stream on which all operations of the group run, in the order of their calls.
    [[nodiscard]] CUstream stream() const { return stream_; }

    /// Calls PrimaryContext::begin_thread().
    [[nodiscard]] CUresult begin_thread() const { return context_.begin_thread(); }

    /// Returns an event without timing. Give it back with release(), also after the backend's end.
    [[nodiscard]] CUevent acquire_event() EXCLUDES(mutex_);
    void release(CUevent event) EXCLUDES(mutex_);

private:
    const CudaApi cuda_;
    const int index_;
    const PrimaryContext context_;
    CUstream stream_ = nullptr;
    ddprun::Mutex mutex_;
    std::vector<CUevent> idle_events_ GUARDED_BY(mutex_);
};

/// Frees what a driver call frees that may wait for all work of the device, which may never end: on a thread of its
/// own, which is left behind after 10 s. Failures do not matter: at exit the driver may have been unloaded first. free
/// owns what it frees, and must not throw
void free_bounded(const std::shared_ptr<GroupDevice>& device, std::function<void(const CudaApi&)> free);

/// Makes the device the calling thread's current one while the scope lasts. Afterwards the thread has its own again, or
/// none, as before: the CUDA runtime would otherwise start device 0 for a program that uses another one.
class DeviceScope {
public:
    /// Throws Error{System} when the device cannot be made current.
    explicit DeviceScope(const GroupDevice& device);
    ~DeviceScope();
    DeviceScope(const DeviceScope&) = delete;
    DeviceScope& operator=(const DeviceScope&) = delete;

private:
    const CudaApi& cuda_;
};

}  // namespace ddp::detail
