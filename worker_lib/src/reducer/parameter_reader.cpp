#include "worker_lib/src/reducer/parameter_reader.hpp"

#include <fmt/format.h>

#include "worker_lib/src/cuda/call_checks.hpp"

namespace ddp::detail {

std::string ParameterReader::complaint(std::span<const Buffer> params) const {
    for (std::size_t i = 0; i < params.size(); ++i) {
        if (params[i].device == Device::Cpu) continue;
        if (device_ == nullptr)
            return fmt::format("buffer {} is device memory, but the reducer's group takes host memory only", i);
        const DeviceScope scope(*device_);
        std::string wrong = memory_complaint(device_->cuda(), params[i], fmt::format("buffer {}", i), device_->index());
        if (wrong.empty()) wrong = capture_complaint(device_->cuda(), static_cast<CUstream>(ready_.handle));
        if (!wrong.empty()) return wrong;
    }
    return {};
}

std::span<const std::byte> ParameterReader::fetch(std::span<const std::byte> piece) {
    if (!copier_) {
        copier_.emplace(device_->cuda(), device_->index());
        pinned_ = copier_->allocate_pinned(kPieceBytes);
        copier_->wait_for(ready_);
    }
    copier_->start(pinned_.data(), piece.data(), piece.size());
    copier_->wait(timeout_);
    return pinned_.first(piece.size());
}

}  // namespace ddp::detail
