#include "rendezvous/store/server/listener.hpp"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <system_error>

#include "common/system/port_holder.hpp"
#include "common/system/resolve.hpp"

namespace ddprun::store {
namespace {

/// The kernel reduces it to the system's maximum (net.core.somaxconn). All ranks of a job connect at once (R11).
constexpr int kBacklog = std::numeric_limits<int>::max();

Error cannot_listen(const Endpoint& endpoint, const std::string& reason) {
    return {Errc::kSystem,
            fmt::format("cannot listen on {}: {}. Is this an address of this host, and the port allowed?",
                        to_string(endpoint), reason)};
}

Error port_in_use(const Endpoint& endpoint) {
    return {Errc::kInUse,
            fmt::format("cannot listen on {}: the port is {}", to_string(endpoint), explain_port_in_use(endpoint))};
}

/// Returns whether the connection failed before it was accepted. Linux reports such errors of the network here, too
/// (accept(2), "Error handling").
bool ended_before_it_was_accepted(int error) {
    constexpr std::array kErrors{ECONNABORTED, EPROTO,      ENETDOWN,   ENETUNREACH, EHOSTDOWN,
                                 EHOSTUNREACH, ENOPROTOOPT, EOPNOTSUPP, ENONET};
    return std::ranges::find(kErrors, error) != kErrors.end();
}

bool set(int socket, int level, int option, int value) {
    return ::setsockopt(socket, level, option, &value, sizeof value) == 0;
}

}  // namespace

Result<Listener> Listener::open(const std::string& address, std::uint16_t port) {
    const auto addresses = numeric_address({address, port});
    if (!addresses) return cannot_listen({address, port}, addresses.error().message);
    const SocketAddress& wanted = addresses->front();
    const int family = wanted.bytes.ss_family;
    UniqueFd socket(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    sockaddr_storage bound{};
    socklen_t size = sizeof bound;
    const bool listening = socket && set(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1) &&
                           // [::] takes IPv4 as well, as the daemon's own port and PyTorch's store do.
                           (family != AF_INET6 || set(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0)) &&
                           ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&wanted.bytes), wanted.size) == 0 &&
                           ::listen(socket.get(), kBacklog) == 0 &&
                           ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &size) == 0;
    if (!listening) {
        const int error = errno;
        if (error == EADDRINUSE && port != 0) return port_in_use({address, port});
        return cannot_listen({address, port}, std::generic_category().message(error));
    }
    return Listener(std::move(socket), bound);
}

Listener::Listener(UniqueFd socket, const sockaddr_storage& bound)
    : socket_(std::move(socket)),
      port_(ntohs(reinterpret_cast<const sockaddr_in&>(bound).sin_port)),  // IPv6 has it at the same offset
      name_(to_text(bound)) {}

Listener::Accepted Listener::accept() const {
    Accepted accepted;
    socklen_t size = sizeof accepted.peer;
    do {
        accepted.socket.reset(
            ::accept4(socket_.get(), reinterpret_cast<sockaddr*>(&accepted.peer), &size, SOCK_NONBLOCK | SOCK_CLOEXEC));
        accepted.error = accepted.socket || errno == EAGAIN ? 0 : errno;
    } while (accepted.error == EINTR || ended_before_it_was_accepted(accepted.error));
    if (accepted.socket) prepare_connection(accepted.socket.get());
    return accepted;
}

void prepare_connection(int socket) {
    // Without this a reply could wait for the acknowledgement of the one before it (R2). A failure costs only speed.
    set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
    // Without this a host that lost its power would keep its connections, and its positions in the queues of waiters,
    // for ever. The kernel probes a silent peer after two hours (net.ipv4.tcp_keepalive_time); a living host's kernel
    // answers, however idle its connection is (R13).
    set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
}

std::string to_text(const sockaddr_storage& address) {
    std::array<char, NI_MAXHOST> host{};
    std::array<char, NI_MAXSERV> service{};
    if (::getnameinfo(reinterpret_cast<const sockaddr*>(&address), sizeof address, host.data(), host.size(),
                      service.data(), service.size(), NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
        return "an unknown address";
    }
    return to_string(Endpoint{host.data(), static_cast<std::uint16_t>(std::stoi(service.data()))});
}

std::string advice_after(int accept_error) {
    if (accept_error == EMFILE) {
        rlimit limit{};
        ::getrlimit(RLIMIT_NOFILE, &limit);
        return fmt::format(
            "This process may open {} files; raise that limit (ulimit -n, or LimitNOFILE= of the service)",
            limit.rlim_cur);
    }
    if (accept_error == ENOSPC)
        return "This user watches as many descriptors as it may; raise fs.epoll.max_user_watches";
    if (accept_error == ENFILE) return "The whole system is at its limit of open files; raise fs.file-max";
    return "The kernel is short of memory; free some, or raise the limit of the control group";
}

}  // namespace ddprun::store
