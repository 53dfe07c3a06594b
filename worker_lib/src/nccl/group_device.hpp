#pragma once
// GroupDevice: what one group uses of its CUDA device: a stream of its own and a pool of events. Shared by the backend
// and the works that it handed out, for those may outlive it. Any thread.

#include <mutex>
#include <string_view>
#include <vector>

#include "worker_lib/src/nccl/nccl_api.hpp"

namespace ddp::detail {

/// Throws Error{System}: "what: CUDA's words".
void check_cuda(const CudaApi& cuda, cudaError_t error, std::string_view what);

/// cudaEventQuery, without its "not yet" as this thread's last error: programs look for errors of their own kernels
/// there.
[[nodiscard]] cudaError_t query_event(const CudaApi& cuda, cudaEvent_t event);

/// Makes `device` the calling thread's current one for a while: the caller's choice is not ours to change.
class DeviceScope {
public:
    DeviceScope(const CudaApi& cuda, int device);
    ~DeviceScope();
    DeviceScope(const DeviceScope&) = delete;
    DeviceScope& operator=(const DeviceScope&) = delete;

private:
    const CudaApi& cuda_;
    const int device_;
    int previous_ = 0;
};

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
