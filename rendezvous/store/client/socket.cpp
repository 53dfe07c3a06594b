#include "rendezvous/store/client/socket.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "common/system/resolve.hpp"

namespace ddprun::store {
namespace {

using namespace std::chrono_literals;

/// An address that answers nothing must not use up the time of the next one.
constexpr Duration kAddressTimeout = 3s;

Error failure(std::string_view what, int errno_value) {
    Error error = system_error(what, errno_value);
    switch (errno_value) {
        case EPIPE:
        case ECONNRESET:
        case ECONNABORTED: error.code = Errc::kClosed; break;
        case ETIMEDOUT: error.code = Errc::kTimeout; break;
        case ECONNREFUSED:
        case ENETUNREACH:
        case EHOSTUNREACH:
        case EADDRNOTAVAIL:
        case ENETDOWN: error.code = Errc::kUnreachable; break;
        default: error.code = Errc::kSystem;
    }
    return error;
}

/// Waits for `events`, or for an error, which the next call on the socket reports. Errors: kTimeout, kSystem.
Result<void> wait_until_ready(int socket, short events, TimePoint deadline) {
    for (;;) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
        // A day at most, so that a deadline of "never" fits into poll's int; then the loop polls again.
        const auto milliseconds = std::clamp<std::chrono::milliseconds>(left, 0ms, 24h);
        pollfd entry{socket, events, 0};
        const int ready = ::poll(&entry, 1, static_cast<int>(milliseconds.count()));
        if (ready > 0) return {};
        if (ready < 0 && errno != EINTR) return failure("poll", errno);
        if (ready == 0 && left <= milliseconds) return Error{Errc::kTimeout, "no answer"};
    }
}

Result<UniqueFd> connect_address(const SocketAddress& address, TimePoint deadline) {
    UniqueFd socket(::socket(address.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket) return failure("cannot make a socket", errno);
    // Without this a request could wait for the acknowledgement of the one before it. A failure costs only speed.
    const int on = 1;
    (void)::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);

    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.bytes), address.size) == 0) return socket;
    if (errno != EINPROGRESS) return failure("connect", errno);
    if (auto ready = wait_until_ready(socket.get(), POLLOUT, deadline); !ready) return ready.error();
    int error = 0;
    socklen_t size = sizeof error;
    if (::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
    if (error != 0) return failure("connect", error);
    return socket;
}

}  // namespace

Result<UniqueFd> connect_socket(const Endpoint& endpoint, TimePoint deadline) {
    const auto addresses = resolve(endpoint, deadline);
    if (!addresses) return addresses.error();
    Error last{Errc::kNotFound, "the host has no address"};
    for (const SocketAddress& address : *addresses) {
        auto socket = connect_address(address, std::min(deadline, Clock::now() + kAddressTimeout));
        if (socket) return socket;
        last = socket.error();
    }
    return last;
}

Result<void> send_all(int socket, std::string_view bytes, TimePoint deadline) {
    while (!bytes.empty()) {
        const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (sent >= 0) {
            bytes.remove_prefix(static_cast<std::size_t>(sent));
        } else if (errno == EAGAIN) {
            if (auto ready = wait_until_ready(socket, POLLOUT, deadline); !ready) return ready.error();
        } else if (errno != EINTR) {
            return failure("send", errno);
        }
    }
    return {};
}

Result<std::size_t> receive_some(int socket, std::span<char> into, TimePoint deadline) {
    for (;;) {
        // Polls first: the answer of a round trip has never arrived yet, and a failed recv would cost as much.
        if (auto ready = wait_until_ready(socket, POLLIN, deadline); !ready) return ready.error();
        const ssize_t received = ::recv(socket, into.data(), into.size(), 0);
        if (received > 0) return static_cast<std::size_t>(received);
        if (received == 0) return Error{Errc::kClosed, "the store ended the connection"};
        if (errno != EAGAIN && errno != EINTR) return failure("receive", errno);
    }
}

Result<void> receive_all(int socket, std::span<char> into, TimePoint deadline) {
    while (!into.empty()) {
        const auto received = receive_some(socket, into, deadline);
        if (!received) return received.error();
        into = into.subspan(*received);
    }
    return {};
}

Result<void> send_and_receive(int socket, std::string_view bytes, std::string& received, Duration timeout) {
    while (!bytes.empty()) {
        const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (sent >= 0) {
            bytes.remove_prefix(static_cast<std::size_t>(sent));
            continue;
        }
        if (errno == EINTR) continue;
        if (errno != EAGAIN) return failure("send", errno);
        if (auto ready = wait_until_ready(socket, POLLIN | POLLOUT, Clock::now() + timeout); !ready)
            return ready.error();
        std::array<char, 65536> chunk;
        const ssize_t got = ::recv(socket, chunk.data(), chunk.size(), 0);
        if (got > 0) received.append(chunk.data(), static_cast<std::size_t>(got));
        if (got == 0) return Error{Errc::kClosed, "the store ended the connection"};
        if (got < 0 && errno != EAGAIN && errno != EINTR) return failure("receive", errno);
    }
    return {};
}

std::string local_address_of(int socket) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    std::array<char, NI_MAXHOST> host{};
    if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
        ::getnameinfo(reinterpret_cast<sockaddr*>(&address), size, host.data(), host.size(), nullptr, 0,
                      NI_NUMERICHOST) != 0) {
        return {};
    }
    return host.data();
}

}  // namespace ddprun::store
