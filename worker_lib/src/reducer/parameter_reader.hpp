#pragma once
// ParameterReader: hashes parameters for verify_parameters, where they are, and lets the host read those that differ,
// from device memory in pieces through pinned memory. The owner's thread.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/clock.hpp"
#include "ddp/buffer.hpp"
#include "worker_lib/src/cuda/device_copier.hpp"
#include "worker_lib/src/cuda/kernels.hpp"

namespace ddp::detail {

class ParameterReader {
public:
    /// device    of the group; null: it takes host memory only
    /// ready     the stream on which parameters in device memory are ready
    /// timeout   of the hashes, and of the copy of one piece
    ParameterReader(const GroupDevice* device, Stream ready, ddprun::Duration timeout)
        : device_(device), ready_(ready), timeout_(timeout) {}

    /// Returns why one of the buffers cannot be read; empty: all can.
    [[nodiscard]] std::string complaint(std::span<const Buffer> params) const;
    /// Returns the WordHash64 of each buffer. Throws Error{System}.
    [[nodiscard]] std::vector<std::uint64_t> hashes(std::span<const Buffer> params);
    /// Passes the bytes of a buffer to `take`, in order. Throws Error{System}.
    template <typename Take>
    void read(const Buffer& buffer, Take take) {
        const std::span whole(static_cast<const std::byte*>(buffer.data), buffer.bytes());
        if (buffer.device == Device::Cpu) return take(whole);
        for (std::size_t done = 0; done < whole.size(); done += kPieceBytes)
            take(fetch(whole.subspan(done, std::min(kPieceBytes, whole.size() - done))));
    }

private:
    static constexpr std::size_t kPieceBytes = std::size_t{8} << 20;
    /// Returns the copier, behind the work on the stream.
    [[nodiscard]] DeviceCopier& copier();
    void hash_on_device(std::span<const Buffer> params, std::span<std::uint64_t> hashes);
    /// Copies a piece of device memory to the pinned memory, and returns it there.
    [[nodiscard]] std::span<const std::byte> fetch(std::span<const std::byte> piece);

    const GroupDevice* const device_;
    const Stream ready_;
    const ddprun::Duration timeout_;
    std::shared_ptr<const GradientKernels> kernels_;  ///< from the first hash on, for longer than the stream needs them
    std::optional<DeviceCopier> copier_;              ///< from the first buffer in device memory on
    std::span<std::byte> pinned_;
};

}  // namespace ddp::detail
