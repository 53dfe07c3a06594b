#pragma once
// Resolves host names within a deadline. getaddrinfo(3) takes no deadline and cannot be interrupted: a name server that
// hangs blocks it for as long as resolv.conf(5) says, a directory service without bound. It therefore runs on a
// detached thread, which is abandoned when it is late. That thread owns its query and shares nothing else, so the
// process may exit while it runs. Any thread may call these functions.

#include <sys/socket.h>

#include <functional>
#include <vector>

#include "common/clock.hpp"
#include "common/endpoint.hpp"
#include "common/error.hpp"

namespace ddprun {

/// A socket address as connect(2) takes it.
struct SocketAddress {
    sockaddr_storage bytes{};
    socklen_t size = 0;
};
/// IPv6 and IPv4 addresses, in the resolver's order.
using Addresses = std::vector<SocketAddress>;

/// Resolves an endpoint; may block without bound. Errors: kNotFound. ask_system() asks the system's resolver.
using LookUp = std::function<Result<Addresses>(const Endpoint&)>;
[[nodiscard]] Result<Addresses> ask_system(const Endpoint& endpoint);

/// Returns the address that `endpoint` spells, without asking a name server. Errors: kNotFound (it is a name).
[[nodiscard]] Result<Addresses> numeric_address(const Endpoint& endpoint);

/// Calls `done` with the result of `look_up` on a detached thread on which no signal is handled. Errors: no thread
/// could be started; `done` is not called then.
[[nodiscard]] Result<void> look_up_detached(Endpoint endpoint, LookUp look_up,
                                            std::function<void(Result<Addresses>)> done);

/// Returns the addresses of `endpoint`, blocking until `deadline`. A name that this host itself knows is found even if
/// the deadline has passed. Errors: kNotFound (unknown, or no name server answered in time).
[[nodiscard]] Result<Addresses> resolve(const Endpoint& endpoint, TimePoint deadline, LookUp look_up = ask_system);

}  // namespace ddprun
