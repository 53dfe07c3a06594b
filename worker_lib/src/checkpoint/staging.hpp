#pragma once
// Staging: the way of a state's device memory through the host. Two pinned pieces: while the host hashes and writes
// one, or reads it from the file, the device copies the other. One thread.

#include <array>
#include <cstddef>
#include <span>

#include "common/clock.hpp"
#include "worker_lib/src/cuda/device_copier.hpp"

namespace ddp::detail {

class Staging {
public:
    static constexpr std::size_t kPieceBytes = 32u << 20;

    /// timeout   of each copy, and of the work before it on the stream that it waits for
    Staging(const CudaApi& cuda, int device, std::size_t piece_bytes, ddprun::Duration timeout);

    [[nodiscard]] std::size_t piece_bytes() const { return pieces_[0].size(); }
    /// Makes later copies wait for the current work on `stream`. Throws Error{InvalidArgument} for one of another
    /// device.
    void wait_for(Stream stream) { copier_.wait_for(stream); }

    /// Starts the copy of device memory, of one piece at most, to the host.
    void start_reading(const std::byte* device, std::size_t bytes);
    /// Waits for that copy and returns it. It stays valid while one other copy runs. Throws Error{System}.
    [[nodiscard]] std::span<const std::byte> finish_reading();

    /// Returns memory for the next piece to write.
    [[nodiscard]] std::span<std::byte> next(std::size_t bytes) { return pieces_[turn_].first(bytes); }
    /// Copies what next() returned to device memory, once the copy before it has ended. Throws Error{System}.
    void start_writing(std::byte* device, std::size_t bytes);
    /// Waits for the last copy. Throws Error{System}.
    void finish_writing() { wait(); }

    /// Waits for the copy in flight, if there is one, after an error. Returns false if it does not end or has failed:
    /// this object may only be destroyed then.
    [[nodiscard]] bool settle();

private:
    void wait();

    DeviceCopier copier_;
    const ddprun::Duration timeout_;
    std::array<std::span<std::byte>, 2> pieces_;
    std::size_t turn_ = 0;   ///< the piece of the next copy
    std::size_t bytes_ = 0;  ///< of the copy that was started last
    bool broken_ = false;    ///< a wait has failed
};

}  // namespace ddp::detail
