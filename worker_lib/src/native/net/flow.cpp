#include "worker_lib/src/native/net/flow.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "worker_lib/src/native/net/sockets.hpp"

namespace ddp::detail {

namespace {

/// The bytes of a message that are next on a socket, as the argument of sendmsg and recvmsg.
class Rest {
public:
    Rest(void* header, void* payload, Seal& seal, const Progress& progress, std::size_t socket) {
        add(header, progress.header_part(socket));
        add(payload, progress.payload_part(socket));
        add(&seal, progress.seal_part(socket));
        message_.msg_iov = parts_.data();
    }
    Rest(const Rest&) = delete;
    Rest& operator=(const Rest&) = delete;
    msghdr* message() { return &message_; }

private:
    void add(void* data, Range part) {
        if (part.empty()) return;
        parts_[message_.msg_iovlen++] = {.iov_base = static_cast<std::byte*>(data) + part.begin,
                                         .iov_len = part.size()};
    }

    std::array<iovec, 3> parts_{};
    msghdr message_{};
};

/// Keeps errno for later: the system reports the error of a socket once, and the end of the stream after that.
void note_error(Link& link) {
    if (link.error == 0) link.error = errno;
}

}  // namespace

bool Link::host_is_silent() const {
    PeerHost host = peer_host(fd(0));
    for (std::size_t number = 1; number < sockets(); ++number) {
        const PeerHost other = peer_host(fd(number));
        host.heard_ago = std::min(host.heard_ago, other.heard_ago);
        host.unanswered = host.unanswered || other.unanswered;
    }
    return is_silent(host);
}

void Flow::send(std::uint32_t step, std::span<const std::byte> bytes, Owner owner) {
    if (owner == Owner::kNeighbour && bytes.size() <= kMaxUnsealed) {
        out.own_copy.assign(bytes.begin(), bytes.end());
        bytes = out.own_copy;
        owner = Owner::kSelf;
    }
    out.active = true;
    out.unsealed = owner == Owner::kNeighbour;
    out.seal = Seal::kGood;
    out.header.step = step;
    out.header.payload_bytes = bytes.size();
    out.bytes = bytes;
    out.progress = {sizeof(MessageHeader),
                    {.payload_bytes = bytes.size(), .sockets = link->sockets()},
                    out.unsealed ? 0 : seal_bytes(bytes.size())};
}

void Flow::seal(Seal seal) {
    out.unsealed = false;
    out.seal = seal;
    out.progress.add_seal(sizeof(Seal));
}

void Flow::receive(std::uint32_t step, std::span<std::byte> bytes) {
    in.active = true;
    in.step = step;
    in.bytes = bytes;
    in.seal = Seal::kGood;
    in.progress = {
        sizeof(MessageHeader), {.payload_bytes = bytes.size(), .sockets = link->sockets()}, seal_bytes(bytes.size())};
}

void Flow::drop_reports() {
    while (in.progress.has_header() && in.header.is_report_of_waiting()) {
        link->waiting = ddprun::Clock::now();
        drop_header();
    }
}

/// Drops the header that was received, which belongs to no message. What was received behind it is the beginning of the
/// message.
void Flow::drop_header() {
    // Header and payload are received in one go: the bytes behind the header lie where the payload and its seal belong.
    std::vector<std::byte> rest(in.progress.done(0) - sizeof(MessageHeader));
    const Stripes payload{.payload_bytes = in.bytes.size(), .sockets = link->sockets()};
    const std::size_t in_payload = std::min(rest.size(), payload.next(0, 0).size());
    std::copy_n(in.bytes.begin(), in_payload, rest.begin());
    if (rest.size() > in_payload) rest.back() = static_cast<std::byte>(in.seal);
    receive(in.step, in.bytes);
    const std::size_t in_header = std::min(rest.size(), sizeof(MessageHeader));
    std::copy_n(rest.begin(), in_header, std::as_writable_bytes(std::span(&in.header, 1)).begin());
    std::ranges::copy(std::span(rest).subspan(in_header), in.bytes.begin());
    in.progress.advance(0, rest.size());
}

void Flow::send_more() {
    for (std::size_t socket = 0; socket < link->sockets(); ++socket) send_more(socket);
}

void Flow::send_more(std::size_t socket) {
    for (std::size_t given = 0; !sent_all(socket) && !link->sending_broken && given < kBytesAtOnce;) {
        auto* const bytes = const_cast<std::byte*>(out.bytes.data());  // sendmsg does not write to it
        Rest rest(&out.header, bytes, out.seal, out.progress, socket);
        const ssize_t now = ::sendmsg(link->fd(socket), rest.message(), MSG_NOSIGNAL);
        if (now > 0) {
            out.progress.advance(socket, static_cast<std::size_t>(now));
            given += static_cast<std::size_t>(now);
        } else if (errno == EAGAIN) {
            return;
        } else if (errno != EINTR) {
            note_error(*link);
            link->sending_broken = true;
        }
    }
}

ssize_t Flow::receive_more(std::size_t socket) {
    Rest rest(&in.header, in.bytes.data(), in.seal, in.progress, socket);
    ssize_t now = 0;
    do {
        now = ::recvmsg(link->fd(socket), rest.message(), 0);
    } while (now < 0 && errno == EINTR);
    if (now > 0) in.progress.advance(socket, static_cast<std::size_t>(now));
    if (now < 0 && errno != EAGAIN) note_error(*link);
    return now;
}

}  // namespace ddp::detail
