#include "worker_lib/src/checkpoint/staging.hpp"

#include "ddp/error.hpp"

namespace ddp::detail {

Staging::Staging(const CudaApi& cuda, int device, std::size_t piece_bytes, ddprun::Duration timeout)
    : copier_(cuda, device), timeout_(timeout) {
    for (auto& piece : pieces_) piece = copier_.allocate_pinned(piece_bytes);
}

void Staging::start_reading(const std::byte* device, std::size_t bytes) {
    bytes_ = bytes;
    copier_.start(pieces_[turn_].data(), device, bytes);
}

std::span<const std::byte> Staging::finish_reading() {
    wait();
    const auto read = pieces_[turn_].first(bytes_);
    turn_ = 1 - turn_;
    return read;
}

void Staging::start_writing(std::byte* device, std::size_t bytes) {
    wait();
    copier_.start(device, pieces_[turn_].data(), bytes);
    turn_ = 1 - turn_;
}

bool Staging::settle() {
    try {
        if (!broken_) wait();
    } catch (const Error&) {  // the error before this one is being reported
    }
    return !broken_;
}

void Staging::wait() {
    broken_ = true;  // unless it returns
    copier_.wait(timeout_);
    broken_ = false;
}

}  // namespace ddp::detail
