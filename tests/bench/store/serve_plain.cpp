#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/bench/store/serve.hpp"

namespace ddprun::bench {
namespace {

/// Small enough to stay in the cache: nothing but the kernel's copies is measured.
constexpr std::size_t kBufferBytes = 256 * 1024;

bool receive_all(int fd, char* bytes, std::size_t size) {
    return ::recv(fd, bytes, size, MSG_WAITALL) == ssize_t(size);
}

bool swallow(int fd, std::vector<char>& buffer, std::uint64_t bytes) {
    while (bytes > 0) {
        const ssize_t n = ::recv(fd, buffer.data(), std::min<std::uint64_t>(bytes, buffer.size()), 0);
        if (n <= 0) return false;
        bytes -= std::uint64_t(n);
    }
    return ::send(fd, "", 1, MSG_NOSIGNAL) == 1;
}

bool pour(int fd, const std::vector<char>& buffer, std::uint64_t bytes) {
    while (bytes > 0) {
        const ssize_t n = ::send(fd, buffer.data(), std::min<std::uint64_t>(bytes, buffer.size()), MSG_NOSIGNAL);
        if (n <= 0) return false;
        bytes -= std::uint64_t(n);
    }
    return true;
}

/// One order: 'S' (swallow, then one byte back) or 'G' (give), and how many bytes.
bool serve_order(int fd, std::vector<char>& buffer) {
    std::array<char, 1 + sizeof(std::uint64_t)> head;
    if (!receive_all(fd, head.data(), head.size())) return false;
    std::uint64_t bytes = 0;
    std::memcpy(&bytes, head.data() + 1, sizeof(bytes));
    return head[0] == 'S' ? swallow(fd, buffer, bytes) : pour(fd, buffer, bytes);
}

}  // namespace

void serve_plain() {
    const int listener = listen_and_tell();
    std::vector<char> buffer(kBufferBytes, 'v');
    for (;;) {  // one connection at a time
        pollfd acceptable{.fd = listener, .events = POLLIN, .revents = 0};
        ::poll(&acceptable, 1, -1);
        const int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
        if (fd < 0) continue;
        while (serve_order(fd, buffer)) {
        }
        ::close(fd);
    }
}

}  // namespace ddprun::bench
