#include "worker_lib/src/nccl/device/device_access.hpp"

#include <fmt/format.h>

#include "common/text/number.hpp"
#include "ddp/error.hpp"
#include "worker_lib/src/nccl/device/group_device.hpp"
#include "worker_lib/src/nccl/device/waiting.hpp"

namespace ddp::detail {

namespace {

class CudaAccess final : public DeviceAccess {
public:
    CudaAccess(const CudaApi& cuda, int device) : device_(cuda, device), mark_(device_.acquire_event()) {
        check_cuda(cuda, cuda.set_device(device), fmt::format("cudaSetDevice({})", device));
    }
    ~CudaAccess() override { device_.release(mark_); }

    [[nodiscard]] Stream stream() const override { return {device_.stream()}; }

    void copy(void* to, const void* from, std::size_t bytes) override {
        if (bytes == 0) return;
        constexpr auto kTimeout = std::chrono::minutes(1);
        const CudaApi& cuda = device_.cuda();
        check_cuda(cuda, cuda.memcpy_async(to, from, bytes, cudaMemcpyDefault, device_.stream()), "cudaMemcpyAsync");
        mark();
        const auto limit = ddprun::Clock::now() + kTimeout;
        for (Backoff backoff; !passed(); backoff.pause()) {
            if (ddprun::Clock::now() < limit) continue;
            throw Error(ErrorCode::System,
                        fmt::format("a copy of {} bytes on CUDA device {}, or an operation queued before it, has not "
                                    "finished in {}: see nvidia-smi, and set NCCL_DEBUG=INFO",
                                    bytes, device_.index(), ddprun::seconds_text(kTimeout)));
        }
    }

    void mark() override {
        check_cuda(device_.cuda(), device_.cuda().event_record(mark_, device_.stream()), "cudaEventRecord");
    }

    [[nodiscard]] bool passed() override {
        const cudaError_t state = query_event(device_.cuda(), mark_);
        if (state != cudaErrorNotReady) check_cuda(device_.cuda(), state, "cudaEventQuery");
        return state == cudaSuccess;
    }

private:
    GroupDevice device_;
    const cudaEvent_t mark_;
};

}  // namespace

std::unique_ptr<DeviceAccess> open_device(const CudaApi& cuda, int device) {
    return std::make_unique<CudaAccess>(cuda, device);
}

std::unique_ptr<DeviceAccess> open_device(int device) {
    const auto api = load_gpu_api();
    if (!api) throw Error(ErrorCode::Unavailable, "no CUDA device: " + api.error().message);
    return open_device(api->cuda, device);
}

}  // namespace ddp::detail
