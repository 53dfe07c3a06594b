#include "worker_lib/src/cuda/device_access.hpp"

#include <fmt/format.h>

#include "common/text/number.hpp"
#include "ddp/error.hpp"
#include "worker_lib/src/cuda/group_device.hpp"
#include "worker_lib/src/cuda/waiting.hpp"

namespace ddp::detail {

namespace {

class CudaAccess final : public DeviceAccess {
public:
    CudaAccess(const CudaApi& cuda, int device) : device_(cuda, device), mark_(device_.acquire_event()) {}
    ~CudaAccess() override { device_.release(mark_); }

    [[nodiscard]] Stream stream() const override { return {device_.stream()}; }

    void copy(void* to, const void* from, std::size_t bytes) override {
        if (bytes == 0) return;
        constexpr auto kTimeout = std::chrono::minutes(1);
        const DeviceScope scope(device_);
        check_cuda(device_.cuda(),
                   device_.cuda().memcpy_async(device_pointer(to), device_pointer(from), bytes, device_.stream()),
                   "cuMemcpyAsync");
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
        const DeviceScope scope(device_);
        check_cuda(device_.cuda(), device_.cuda().event_record(mark_, device_.stream()), "cuEventRecord");
    }

    [[nodiscard]] bool passed() override {
        const DeviceScope scope(device_);
        const CUresult state = device_.cuda().event_query(mark_);
        if (state != CUDA_ERROR_NOT_READY) check_cuda(device_.cuda(), state, "cuEventQuery");
        return state == CUDA_SUCCESS;
    }

private:
    GroupDevice device_;
    const CUevent mark_;
};

}  // namespace

std::unique_ptr<DeviceAccess> open_device(const CudaApi& cuda, int device) {
    return std::make_unique<CudaAccess>(cuda, device);
}

std::unique_ptr<DeviceAccess> open_device(int device) {
    const auto unavailable = [&](const std::string& why) {
        return Error(ErrorCode::Unavailable, fmt::format("CUDA device {} cannot be used: {}", device, why));
    };
    const auto cuda = load_cuda();
    if (!cuda) throw unavailable(cuda.error().message);
    if (const auto count = count_devices(*cuda); !count) throw unavailable(count.error().message);
    return open_device(*cuda, device);
}

}  // namespace ddp::detail
