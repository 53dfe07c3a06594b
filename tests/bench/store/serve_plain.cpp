#include <netinet/in.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <span>

#include "tests/bench/store/serve.hpp"

namespace ddprun::bench {
namespace {

/// What each recv and send moves at most.
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

/// In huge pages where the kernel has them, as our store keeps large values; all of it written to.
std::span<char> make_buffer(std::size_t bytes) {
    void* const memory = std::aligned_alloc(kHugePageBytes, std::max(bytes, kHugePageBytes));
    if (memory == nullptr) throw std::bad_alloc();
    ::madvise(memory, bytes, MADV_HUGEPAGE);  // only a hint
    std::memset(memory, 'v', bytes);
    return {static_cast<char*>(memory), bytes};
}

/// Where the bytes of one value go and come from: all of them one after the other, or again and again the same few.
class Pieces {
public:
    Pieces(std::span<char> buffer, std::uint64_t bytes) : buffer_(buffer), left_(bytes) {}
    [[nodiscard]] std::uint64_t left() const { return left_; }
    [[nodiscard]] std::span<char> next() {
        if (at_ == buffer_.size()) at_ = 0;
        return buffer_.subspan(at_, std::min<std::uint64_t>({left_, kPieceBytes, buffer_.size() - at_}));
    }
    void moved(std::size_t bytes) { at_ += bytes, left_ -= bytes; }

private:
    std::span<char> buffer_;
    std::size_t at_ = 0;
    std::uint64_t left_;
};

bool receive_all(int fd, char* bytes, std::size_t size) {
    return ::recv(fd, bytes, size, MSG_WAITALL) == ssize_t(size);
}

bool swallow(int fd, std::span<char> buffer, std::uint64_t bytes) {
    for (Pieces pieces(buffer, bytes); pieces.left() > 0;) {
        const auto piece = pieces.next();
        const ssize_t n = ::recv(fd, piece.data(), piece.size(), 0);
        if (n <= 0) return false;
        pieces.moved(std::size_t(n));
    }
    return ::send(fd, "", 1, MSG_NOSIGNAL) == 1;
}

bool pour(int fd, std::span<char> buffer, std::uint64_t bytes) {
    for (Pieces pieces(buffer, bytes); pieces.left() > 0;) {
        const auto piece = pieces.next();
        const ssize_t n = ::send(fd, piece.data(), piece.size(), MSG_NOSIGNAL);
        if (n <= 0) return false;
        pieces.moved(std::size_t(n));
    }
    return true;
}

/// One order: 'S' (swallow, then one byte back) or 'G' (give), and how many bytes.
bool serve_order(int fd, std::span<char> buffer) {
    std::array<char, 1 + sizeof(std::uint64_t)> head;
    if (!receive_all(fd, head.data(), head.size())) return false;
    std::uint64_t bytes = 0;
    std::memcpy(&bytes, head.data() + 1, sizeof(bytes));
    return head[0] == 'S' ? swallow(fd, buffer, bytes) : pour(fd, buffer, bytes);
}

}  // namespace

void serve_plain(std::size_t buffer_bytes) {
    const int listener = listen_and_tell();
    const std::span<char> buffer = make_buffer(buffer_bytes);
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
