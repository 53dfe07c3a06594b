#include "worker_lib/src/reducer/parameter_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "common/word_hash.hpp"
#include "worker_lib/src/cuda/call_checks.hpp"
#include "worker_lib/src/operation/operation_check.hpp"

namespace ddp::detail {

std::string ParameterReader::complaint(std::span<const Buffer> params) const {
    for (std::size_t i = 0; i < params.size(); ++i) {
        if (params[i].device == Device::Cpu) {
            if (auto text = device_memory_complaint(params[i], "buffer ", std::to_string(i)); !text.empty())
                return text;
            continue;
        }
        if (device_ == nullptr) {
            return fmt::format(
                "buffer {} is device memory, but the reducer's group takes host memory only. Copy it to the host, or "
                "make the reducer on a group of Backend::Nccl, without ReducerOptions::device",
                i);
        }
        const DeviceScope scope(*device_);
        std::string wrong = memory_complaint(device_->cuda(), params[i], fmt::format("buffer {}", i), device_->index());
        if (wrong.empty()) wrong = capture_complaint(device_->cuda(), static_cast<CUstream>(ready_.handle));
        if (!wrong.empty()) return wrong;
    }
    return {};
}

DeviceCopier& ParameterReader::copier() {
    if (!copier_) {
        copier_.emplace(device_->cuda(), device_->index());
        copier_->wait_for(ready_);
    }
    return *copier_;
}

std::vector<std::uint64_t> ParameterReader::hashes(std::span<const Buffer> params) {
    std::vector<std::uint64_t> hashes(params.size());
    if (std::ranges::find(params, Device::Cuda, &Buffer::device) != params.end()) hash_on_device(params, hashes);
    for (std::size_t i = 0; i < params.size(); ++i) {
        if (params[i].device != Device::Cpu) continue;
        ddprun::WordHash64 hash;
        hash.add({static_cast<const std::byte*>(params[i].data), params[i].bytes()});
        hashes[i] = hash.value();
    }
    return hashes;
}

void ParameterReader::hash_on_device(std::span<const Buffer> params, std::span<std::uint64_t> hashes) {
    const std::span pinned = copier().allocate_pinned(hashes.size_bytes());
    const CUdeviceptr sums = copier().allocate_zeroed(hashes.size_bytes());
    {
        const CallScope scope(*device_);
        if (kernels_ == nullptr) kernels_ = GradientKernels::of(*device_);
        for (std::size_t i = 0; i < params.size(); ++i) {
            if (params[i].device == Device::Cpu || params[i].count == 0) continue;
            kernels_->hash(params[i].data, params[i].bytes(), sums + i * sizeof(std::uint64_t),
                           static_cast<CUstream>(copier().stream().handle));
        }
    }
    copier().start(pinned.data(), reinterpret_cast<const void*>(sums), pinned.size());
    copier().wait(timeout_);
    std::memcpy(hashes.data(), pinned.data(), pinned.size());
}

std::span<const std::byte> ParameterReader::fetch(std::span<const std::byte> piece) {
    if (pinned_.empty()) pinned_ = copier().allocate_pinned(kPieceBytes);
    copier().start(pinned_.data(), piece.data(), piece.size());
    copier().wait(timeout_);
    return pinned_.first(piece.size());
}

}  // namespace ddp::detail
