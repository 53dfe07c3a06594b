#pragma once
// GroupDevice: what one group uses of its CUDA device: a stream of its own and a pool of events. Shared by the backend
// and the works that it handed out, for those may outlive it. Any thread.

#include <mutex>
#include <string_view>
#include <vector>

#include "worker_lib/src/nccl/nccl_api.hpp"

namespace ddp::detail {

/// Throws Error{System}: "what: CUDA's words", of which the CUDA runtime forgets then: see query_event().
void check_cuda(const CudaApi& cuda, cudaError_t error, std::string_view what);

/// cudaEventQuery, without its "not yet" as this thread's last error: programs look for errors of their own kernels
/// there.
[[nodiscard]] cudaError_t query_event(const CudaApi& cuda, cudaEvent_t event);

/// Makes `device` the calling thread's current one for a while: the caller's choice is not ours to change. A thread
/// that has made none is left without: cudaSetDevice(0) would start device 0, with some hundred MB of its memory, for a
/// program that uses another one.
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
    CUcontext previous_ = nullptr;  // of the thread, if switched_; null: none
};

/// The first call on a thread of ours: `device` is its current one from here on, and what it asks CUDA is no part of
/// what other threads capture into graphs. By default an event query of any thread ends their captures.
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
    /// All collectives of the group run here, in the order of their calls.
    [[nodiscard]] cudaStream_t stream() const { return stream_; }

    /// An event without timing. Give it back with release(), also after the backend is gone.
    [[nodiscard]] cudaEvent_t acquire_event();
    void release(cudaEvent_t event);

private:
    const CudaApi cuda_;
    const int index_;
    cudaStream_t stream_ = nullptr;
    std::mutex mutex_;
    std::vector<cudaEvent_t> idle_events_;
};

}  // namespace ddp::detail
