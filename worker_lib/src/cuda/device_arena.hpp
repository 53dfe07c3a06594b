#pragma once
// DeviceArena: owns buffers on the group's device, which start as zeros and live as long as the group. NCCL needs no
// special memory for them. Any thread.

#include <memory>
#include <vector>

#include "common/mutex.hpp"
#include "ddp/process_group.hpp"
#include "worker_lib/src/cuda/group_device.hpp"

namespace ddp::detail {

class DeviceArena final : public Arena {
public:
    explicit DeviceArena(std::shared_ptr<GroupDevice> device) : device_(std::move(device)) {}
    /// Does not wait for the device longer than 10 s.
    ~DeviceArena() override;

    /// Returns zeroed memory. Throws Error{System} when the device has no room or does not answer.
    [[nodiscard]] void* allocate(std::size_t bytes) override EXCLUDES(mutex_);

private:
    void fill_with_zeros(CUdeviceptr memory, std::size_t bytes);

    const std::shared_ptr<GroupDevice> device_;
    ddprun::Mutex mutex_;
    std::vector<CUdeviceptr> blocks_ GUARDED_BY(mutex_);
};

}  // namespace ddp::detail
