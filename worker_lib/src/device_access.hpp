#pragma once
// DeviceAccess: how a program of this project that has no CUDA of its own gets at what lies on a device. Standard
// library only, so that it exists in builds without CUDA, too. One thread at a time.

#include <cstddef>
#include <memory>

#include "ddp/types.hpp"

namespace ddp::detail {

class DeviceAccess {
public:
    virtual ~DeviceAccess() = default;
    /// A stream of its own, for the caller's operations.
    [[nodiscard]] virtual Stream stream() const = 0;
    /// Copies between host and device, either way, once all on stream() is done; returns when it has. Throws
    /// Error{System}, also if the device has not come so far in a minute.
    virtual void copy(void* to, const void* from, std::size_t bytes) = 0;
    /// Asks about what is on stream() now.
    virtual void mark() = 0;
    /// Whether all that was there at the last mark() is done. Throws Error{System}.
    [[nodiscard]] virtual bool passed() = 0;
};

/// CUDA device `device`, which becomes the calling thread's current one. Throws Error{Unavailable} where there is none.
[[nodiscard]] std::unique_ptr<DeviceAccess> open_device(int device);

}  // namespace ddp::detail
