#include "worker_lib/src/cuda/device_access.hpp"

#include <fmt/format.h>

#include <chrono>

#include "ddp/error.hpp"
#include "worker_lib/src/cuda/device_copier.hpp"

namespace ddp::detail {
namespace {

class CudaAccess final : public DeviceAccess {
public:
    CudaAccess(const CudaApi& cuda, int device) : copier_(cuda, device) {}

    [[nodiscard]] Stream stream() const override { return copier_.stream(); }
    void copy(void* to, const void* from, std::size_t bytes) override {
        if (bytes == 0) return;
        copier_.start(to, from, bytes);
        copier_.wait(std::chrono::minutes(1));
    }
    void mark() override { copier_.mark(); }
    [[nodiscard]] bool passed() override { return copier_.passed(); }

private:
    DeviceCopier copier_;
};

}  // namespace

std::unique_ptr<DeviceAccess> open_device(const CudaApi& cuda, int device) {
    return std::make_unique<CudaAccess>(cuda, device);
}

std::unique_ptr<DeviceAccess> open_device(int local_rank) {
    const auto unavailable = [&](const std::string& why) {
        return Error(ErrorCode::Unavailable, fmt::format("no CUDA device for local rank {}: {}", local_rank, why));
    };
    const auto cuda = load_cuda();
    if (!cuda) throw unavailable(cuda.error().message);
    const auto count = count_devices(*cuda);
    if (!count) throw unavailable(count.error().message);
    return open_device(*cuda, device_of_local_rank(*count, local_rank));
}

}  // namespace ddp::detail
