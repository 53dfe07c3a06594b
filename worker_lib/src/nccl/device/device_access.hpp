#pragma once
// DeviceAccess: copies to and from a CUDA device for ddp-bench, which is not built with CUDA itself. Standard library
// only, so that it exists in builds without CUDA, too. One thread at a time.

#include <cstddef>
#include <memory>

#include "ddp/types.hpp"

namespace ddp::detail {

struct CudaApi;

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

/// Opens CUDA device `device`, which becomes the calling thread's current one. Throws Error{Unavailable} if there is
/// none.
[[nodiscard]] std::unique_ptr<DeviceAccess> open_device(int device);
/// The same over a given function table, such as a test's fake. Only in builds with CUDA.
[[nodiscard]] std::unique_ptr<DeviceAccess> open_device(const CudaApi& cuda, int device);

}  // namespace ddp::detail
