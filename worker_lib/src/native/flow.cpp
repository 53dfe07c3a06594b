#include "worker_lib/src/native/flow.hpp"

#include <sys/socket.h>

#include <array>
#include <cerrno>

namespace ddp::detail {

namespace {

/// What is left of a header and its payload after the first `done` bytes of both.
class Rest {
public:
    Rest(void* header, void* payload, std::size_t payload_bytes, std::size_t done) {
        constexpr std::size_t kHeader = sizeof(MessageHeader);
        if (done < kHeader) add(static_cast<std::byte*>(header) + done, kHeader - done);
        const std::size_t of_payload = done < kHeader ? 0 : done - kHeader;
        if (of_payload < payload_bytes) add(static_cast<std::byte*>(payload) + of_payload, payload_bytes - of_payload);
        message_.msg_iov = parts_.data();
    }
    Rest(const Rest&) = delete;
    Rest& operator=(const Rest&) = delete;
    msghdr* message() { return &message_; }

private:
    void add(std::byte* data, std::size_t size) { parts_[message_.msg_iovlen++] = {.iov_base = data, .iov_len = size}; }

    std::array<iovec, 2> parts_{};
    msghdr message_{};
};

}  // namespace

void Flow::send(std::uint32_t step, std::span<const std::byte> bytes) {
    sending = true;
    out_header.step = step;
    out_header.payload_bytes = bytes.size();
    out = bytes;
    sent = 0;
}

void Flow::receive(std::uint32_t step, std::span<std::byte> bytes) {
    receiving = true;
    in_step = step;
    in = bytes;
    received = 0;
}

void Flow::send_more() {
    while (!sent_all() && !link->sending_broken) {
        Rest rest(&out_header, const_cast<std::byte*>(out.data()), out.size(), sent);  // sendmsg does not write to it
        const ssize_t now = ::sendmsg(link->socket.get(), rest.message(), MSG_NOSIGNAL);
        if (now > 0) {
            sent += static_cast<std::size_t>(now);
        } else if (errno == EAGAIN) {
            return;
        } else if (errno != EINTR) {
            link->sending_broken = true;
        }
    }
}

ssize_t Flow::receive_more() {
    Rest rest(&in_header, in.data(), in.size(), received);
    ssize_t now = 0;
    do {
        now = ::recvmsg(link->socket.get(), rest.message(), 0);
    } while (now < 0 && errno == EINTR);
    if (now > 0) received += static_cast<std::size_t>(now);
    return now;
}

}  // namespace ddp::detail
