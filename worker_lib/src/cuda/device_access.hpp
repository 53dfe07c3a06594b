#pragma once
// DeviceAccess: copies to and from a CUDA device for ddp-bench. One thread at a time.

#include <cstddef>
#include <memory>

#include "ddp/types.hpp"
#include "worker_lib/src/cuda/abi.hpp"

namespace ddp::detail {

class DeviceAccess {
public:
    virtual ~DeviceAccess() = default;
    /// Returns a stream of its own, for the caller's operations.
    [[nodiscard]] virtual Stream stream() const = 0;
    /// Copies between host and device, in either direction, after the work on stream(), and waits for the copy. Throws
    /// Error{System}, also if that takes more than a minute.
    virtual void copy(void* to, const void* from, std::size_t bytes) = 0;
    /// Marks the end of the current work on stream(). Throws Error{System}.
    virtual void mark() = 0;
    /// Returns whether the device has passed the last mark(). Throws Error{System}.
    [[nodiscard]] virtual bool passed() = 0;
};

/// Opens the CUDA device of a local rank (device_of_local_rank). Throws Error{Unavailable} if there is no driver or no
/// device, Error{System} if it cannot be used.
[[nodiscard]] std::unique_ptr<DeviceAccess> open_device(int local_rank);
/// Opens a device by its index, over a given function table, such as a test's fake.
[[nodiscard]] std::unique_ptr<DeviceAccess> open_device(const abi::CudaApi& cuda, int device);

}  // namespace ddp::detail
