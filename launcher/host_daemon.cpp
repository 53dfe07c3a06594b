#include "launcher/host_daemon.hpp"

#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "common/unique_fd.hpp"
#include "launcher/this_host.hpp"

namespace ddprun::launcher {
namespace {

/// Where an agent on this machine connects to: not to 0.0.0.0, which is no destination by any standard.
Endpoint for_local_agent(Endpoint endpoint) {
    if (is_wildcard(endpoint.host)) endpoint.host = endpoint.host == "::" ? "::1" : "127.0.0.1";
    return endpoint;
}

Result<Hosted> met_holder(const Endpoint& endpoint) {
    const auto holder = find_port_holder(endpoint);
    if (when_taken(holder) == Taken::kJoinIt) return Hosted{for_local_agent(endpoint), false, {}};
    return Error{Errc::kInUse, fmt::format("cannot host the rendezvous at {}: the port is held by {}. End that process, or pass "
                                           "another --rdzv-endpoint HOST:PORT.", to_string(endpoint), to_string(*holder))};
}

Error cannot_bind(const Endpoint& endpoint, int error) {
    const char* advice = error == EACCES ? "Ports below 1024 need a privilege: pass another one with --rdzv-endpoint."
                                         : "Check --rdzv-endpoint, --master-addr and is_host.";
    return {error == EACCES ? Errc::kRefused : Errc::kSystem,
            fmt::format("cannot host the rendezvous at {}: {}. {}", to_string(endpoint), std::strerror(error), advice)};
}

}  // namespace

Taken when_taken(const std::optional<PortHolder>& holder) {
    const bool stranger = holder && holder->pid && holder->program != "ddprund";
    return stranger ? Taken::kRefuse : Taken::kJoinIt;
}

int probe_bind(const Endpoint& endpoint) {
    addrinfo hints{};
    hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (::getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &found) != 0) return EADDRNOTAVAIL;
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);

    const UniqueFd socket(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!socket) return errno;
    const int on = 1;
    // As the daemon does it: connections of an earlier job that are still in TIME_WAIT are no obstacle, a listener is.
    ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    return ::bind(socket.get(), found->ai_addr, found->ai_addrlen) == 0 ? 0 : errno;
}

Result<Hosted> host_or_join(const DaemonRequest& request) {
    const int before = probe_bind(request.bind);
    if (before == EADDRINUSE) return met_holder(request.bind);
    if (before != 0) return cannot_bind(request.bind, before);

    auto daemon = start_daemon(request);
    if (daemon) return Hosted{for_local_agent(daemon->endpoint), true, std::move(daemon->lifeline)};
    // Between the look and the start somebody else may have been faster: two terminals, one moment.
    if (request.bind.port != 0 && probe_bind(request.bind) == EADDRINUSE) return met_holder(request.bind);
    return daemon.error();
}

}  // namespace ddprun::launcher
