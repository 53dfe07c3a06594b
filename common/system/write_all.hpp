#pragma once
// Writes all of a text to a descriptor, in as many calls of write(2) as that takes.

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <string_view>

namespace ddprun {

/// Writes `bytes`; returns how many were written. If that is not all of them, errno is set.
[[nodiscard]] inline std::size_t write_all(int fd, std::string_view bytes) {
    std::size_t written = 0;
    while (written < bytes.size()) {
        const ssize_t count = ::write(fd, bytes.data() + written, bytes.size() - written);
        if (count < 0 && errno != EINTR) break;
        if (count > 0) written += static_cast<std::size_t>(count);
    }
    return written;
}

}  // namespace ddprun
