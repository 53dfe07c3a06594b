#include "worker_lib/src/native/net/sockets.hpp"

#include <arpa/inet.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/un.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstring>
#include <thread>

#include "worker_lib/src/native/protocol/deadlines.hpp"
#include "worker_lib/src/util/error.hpp"

namespace ddp::detail {

namespace {

using ddprun::Result;
using ddprun::system_error;
using ddprun::TimePoint;
using ddprun::UniqueFd;

/// A socket address of any family.
struct Address {
    sockaddr_storage storage{};
    socklen_t length = 0;
    [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

Result<Address> tcp_address(const std::string& host, int port) {
    Address address;
    const auto network_port = htons(static_cast<std::uint16_t>(port));
    auto* v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
    if (::inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = network_port;
        address.length = sizeof(sockaddr_in);
    } else if (::inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = network_port;
        address.length = sizeof(sockaddr_in6);
    } else {
        return ddprun::Error{ddprun::Errc::kUsage, fmt::format("'{}' is not a numeric address", host)};
    }
    return address;
}

Address unix_address(const std::string& name) {
    Address address;
    auto* local = reinterpret_cast<sockaddr_un*>(&address.storage);
    local->sun_family = AF_UNIX;
    const auto length = std::min(name.size(), sizeof(local->sun_path) - 1);
    std::memcpy(local->sun_path + 1, name.data(), length);  // the zero byte before it makes it abstract
    address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
    return address;
}

Result<UniqueFd> open_socket(int family) {
    UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd) return system_error("cannot open a socket", errno);
    return fd;
}

Result<UniqueFd> listen_on(const Address& address, const std::string& text) {
    auto fd = open_socket(address.storage.ss_family);
    if (!fd) return fd;
    if (::bind(fd->get(), address.get(), address.length) != 0 || ::listen(fd->get(), SOMAXCONN) != 0) {
        return system_error(fmt::format("cannot listen on {}", text), errno);
    }
    return fd;
}

void set_option(int socket, int level, int name, int value) {
    // A refused option costs speed, or a later notice of a lost host, but never correctness.
    (void)::setsockopt(socket, level, name, &value, sizeof(value));
}

}  // namespace

Result<UniqueFd> listen_tcp(const std::string& host, int& port) {
    const auto address = tcp_address(host, port);
    if (!address) return address.error();
    auto fd = listen_on(*address, fmt::format("{} port {}", host, port));
    if (!fd) return fd;
    Address bound;
    bound.length = sizeof(bound.storage);
    if (::getsockname(fd->get(), reinterpret_cast<sockaddr*>(&bound.storage), &bound.length) != 0) {
        return system_error("cannot ask for the port of a socket", errno);
    }
    // The port lies at the same offset in both families.
    port = ntohs(reinterpret_cast<const sockaddr_in*>(&bound.storage)->sin_port);
    return fd;
}

Result<UniqueFd> listen_unix(const std::string& name) {
    return listen_on(unix_address(name), "an abstract Unix socket");
}

UniqueFd accept_unidentified(int listener, std::size_t waiting, std::size_t max_waiting,
                             const std::function<bool(bool no_descriptor)>& drop_one) {
    for (;;) {
        UniqueFd socket(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        const int error = socket ? 0 : errno;
        const bool no_descriptor = error == EMFILE || error == ENFILE;
        // Without a free descriptor accept() fails in this way even if no connection waits.
        if (no_descriptor && !wait_for(listener, POLLIN, TimePoint{})) return UniqueFd();
        if (no_descriptor && waiting == 0) throw_errno("cannot accept the connection of another rank", error);
        if (no_descriptor || (socket && waiting >= max_waiting)) {
            if (!drop_one(no_descriptor) && no_descriptor) return UniqueFd();
            --waiting;
        }
        if (!no_descriptor) return socket;
    }
}

Result<UniqueFd> begin_connect_tcp(const std::string& host, int port) {
    const auto address = tcp_address(host, port);
    if (!address) return address.error();
    auto fd = open_socket(address->storage.ss_family);
    if (!fd) return fd;
    if (::connect(fd->get(), address->get(), address->length) == 0 || errno == EINPROGRESS) return fd;
    return system_error(fmt::format("cannot connect to {} port {}", host, port), errno);
}

Result<void> finish_connect(int socket, const std::string& what) {
    int error = 0;
    socklen_t length = sizeof(error);
    if (::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
    if (error != 0) return system_error(what, error);
    return {};
}

Result<UniqueFd> connect_tcp(const std::string& host, int port, TimePoint deadline) {
    auto fd = begin_connect_tcp(host, port);
    if (!fd) return fd;
    const std::string what = fmt::format("cannot connect to {} port {}", host, port);
    if (!wait_for(fd->get(), POLLOUT, deadline)) return ddprun::Error{ddprun::Errc::kTimeout, what + ": no answer"};
    if (const auto connected = finish_connect(fd->get(), what); !connected) return connected.error();
    return fd;
}

/// Unlike TCP, a Unix socket fails at once if the listener's queue is full. Kernels before 5.4 queue only 128, and on a
/// large node more ranks may connect before the listener accepts any.
Result<UniqueFd> connect_unix(const std::string& name, TimePoint deadline) {
    constexpr std::chrono::milliseconds kRetryInterval{2};  // the kernel does not signal when there is room
    const Address address = unix_address(name);
    auto fd = open_socket(AF_UNIX);
    if (!fd) return fd;
    while (::connect(fd->get(), address.get(), address.length) != 0) {
        if (errno == EINTR) continue;
        if (errno != EAGAIN) {
            return system_error("cannot connect to its Unix socket (in another network namespace?)", errno);
        }
        if (ddprun::Clock::now() >= deadline) {
            return ddprun::Error{ddprun::Errc::kTimeout,
                                 "it accepts no connection on its Unix socket, whose queue is full"};
        }
        std::this_thread::sleep_for(kRetryInterval);
    }
    return fd;
}

bool is_unreachable(int errno_value) {
    return errno_value == ETIMEDOUT || errno_value == EHOSTUNREACH || errno_value == ENETUNREACH ||
           errno_value == EHOSTDOWN || errno_value == ENETDOWN;
}

bool is_unreachable(const ddprun::Error& error) {
    return error.code.category() == boost::system::system_category() && is_unreachable(error.code.value());
}

void prepare_tcp(int socket) {
    constexpr int kIdle = 10;
    constexpr int kInterval = 5;
    constexpr int kProbes = 4;
    // The connection ends one interval after the last probe, which is the last one that can be answered.
    static_assert(std::chrono::seconds((kProbes - 1) * kInterval) == kUnreachableTolerated);
    set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, kIdle);
    set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, kInterval);
    set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
    // No TCP_USER_TIMEOUT: it also ends connections to a live peer that does not read for a while, like a rank that
    // evaluates or loads data while the others wait for it in a collective.
}

bool acknowledges(int socket) {
    tcp_info info{};
    socklen_t length = sizeof(info);
    if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return true;
    return info.tcpi_probes < 2 && (info.tcpi_unacked == 0 || info.tcpi_retransmits < 2);
}

PeerHost peer_host(int socket) {
    tcp_info info{};
    socklen_t length = sizeof(info);
    if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return {};
    return {.heard_ago = std::chrono::milliseconds(std::min(info.tcpi_last_ack_recv, info.tcpi_last_data_recv)),
            .unanswered = info.tcpi_probes >= 2 || (info.tcpi_unacked > 0 && info.tcpi_retransmits >= 4)};
}

bool is_silent(const PeerHost& host) { return host.unanswered && host.heard_ago >= kUnreachableNoticed; }

bool send_queue_is_empty(int socket) {
    int left = 0;
    return ::ioctl(socket, SIOCOUTQ, &left) == 0 && left == 0;
}

namespace {

/// Discards input. Returns whether everything sent is acknowledged, or the connection has ended.
bool is_through(int socket) {
    std::array<std::byte, 16384> unwanted;
    ssize_t got = 0;
    while ((got = ::recv(socket, unwanted.data(), unwanted.size(), MSG_DONTWAIT)) > 0) {
    }
    if (got == 0 || errno != EAGAIN) return true;
    int left = 0;
    return ::ioctl(socket, SIOCOUTQ, &left) != 0 || left == 0;
}

}  // namespace

void drain(std::vector<int> sockets, ddprun::TimePoint deadline) {
    constexpr std::chrono::milliseconds kLookInterval{2};  // the kernel does not signal acknowledgements
    for (;;) {
        std::erase_if(sockets, is_through);
        if (sockets.empty() || ddprun::Clock::now() >= deadline) return;
        std::vector<pollfd> waiting;
        for (const int socket : sockets) waiting.push_back({.fd = socket, .events = POLLIN, .revents = 0});
        (void)::poll(waiting.data(), waiting.size(), static_cast<int>(kLookInterval.count()));
    }
}

int poll_timeout(TimePoint deadline) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - ddprun::Clock::now()).count();
    return static_cast<int>(std::clamp<decltype(left)>(left, 0, INT_MAX));
}

bool wait_for(int fd, short events, TimePoint deadline) {
    for (;;) {
        pollfd one{.fd = fd, .events = events, .revents = 0};
        const int ready = ::poll(&one, 1, poll_timeout(deadline));
        if (ready > 0) return true;
        if (ddprun::Clock::now() >= deadline) return false;
    }
}

ssize_t receive_some(int socket, std::span<std::byte> bytes, UniqueFd& passed) {
    iovec part{.iov_base = bytes.data(), .iov_len = bytes.size()};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    ssize_t received = 0;
    do {
        received = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    } while (received < 0 && errno == EINTR);
    const cmsghdr* extra = received > 0 ? CMSG_FIRSTHDR(&message) : nullptr;
    if (extra != nullptr && extra->cmsg_level == SOL_SOCKET && extra->cmsg_type == SCM_RIGHTS) {
        // Because of padding there is room for more than one descriptor: all but the last are closed.
        for (std::size_t i = 0; i < (extra->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
            int descriptor = -1;
            std::memcpy(&descriptor, CMSG_DATA(extra) + i * sizeof(int), sizeof(descriptor));
            passed.reset(descriptor);
        }
    } else if (received > 0 && (message.msg_flags & MSG_CTRUNC) != 0) {
        errno = EMFILE;  // the only reason why a passed descriptor is missing
        return -1;
    }
    return received;
}

Result<void> receive_all(int socket, std::span<std::byte> bytes, UniqueFd& passed, TimePoint deadline) {
    while (!bytes.empty()) {
        const ssize_t received = receive_some(socket, bytes, passed);
        if (received > 0) {
            bytes = bytes.subspan(static_cast<std::size_t>(received));
        } else if (received == 0) {
            return ddprun::Error{ddprun::Errc::kClosed, "it closed the connection"};
        } else if (errno != EAGAIN) {
            return system_error("the connection failed", errno);
        } else if (!wait_for(socket, POLLIN, deadline)) {
            return ddprun::Error{ddprun::Errc::kTimeout, "it did not answer in time"};
        }
    }
    return {};
}

Result<void> send_all(int socket, std::span<const std::byte> bytes, int descriptor, TimePoint deadline) {
    while (!bytes.empty()) {
        // sendmsg does not write to it
        iovec part{.iov_base = const_cast<std::byte*>(bytes.data()), .iov_len = bytes.size()};
        alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
        msghdr message{};
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        if (descriptor >= 0) {
            message.msg_control = control.data();
            message.msg_controllen = control.size();
            cmsghdr* extra = CMSG_FIRSTHDR(&message);
            extra->cmsg_level = SOL_SOCKET;
            extra->cmsg_type = SCM_RIGHTS;
            extra->cmsg_len = CMSG_LEN(sizeof(int));
            std::memcpy(CMSG_DATA(extra), &descriptor, sizeof(descriptor));
        }
        const ssize_t sent = ::sendmsg(socket, &message, MSG_NOSIGNAL);
        if (sent > 0) {
            bytes = bytes.subspan(static_cast<std::size_t>(sent));
            descriptor = -1;
        } else if (errno == EAGAIN) {
            if (!wait_for(socket, POLLOUT, deadline))
                return ddprun::Error{ddprun::Errc::kTimeout, "it did not read in time"};
        } else if (errno != EINTR) {
            return system_error("the connection failed", errno);
        }
    }
    return {};
}

}  // namespace ddp::detail
