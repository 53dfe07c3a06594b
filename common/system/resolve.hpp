#pragma once
// Addresses of a host name, without an endless wait for a name server. getaddrinfo(3) can neither be given a deadline
// nor be interrupted, and a name server that hangs holds it for as long as resolv.conf(5) says, or a directory service
// for ever. So it runs on a detached thread, which is left to itself when it is late: it owns its question and shares
// nothing else, and a process may exit under it. Any thread.

#include <sys/socket.h>

#include <functional>
#include <vector>

#include "common/clock.hpp"
#include "common/endpoint.hpp"
#include "common/error.hpp"

namespace ddprun {

struct SocketAddress {
    sockaddr_storage bytes{};
    socklen_t size = 0;
};
/// In the resolver's order, IPv6 and IPv4.
using Addresses = std::vector<SocketAddress>;

/// Asks the system; may block without bound. Errors: kNotFound.
using LookUp = std::function<Result<Addresses>(const Endpoint&)>;
[[nodiscard]] Result<Addresses> ask_system(const Endpoint& endpoint);

/// Returns the address that `endpoint` spells, without asking a name server. Errors: kNotFound (it is a name).
[[nodiscard]] Result<Addresses> numeric_address(const Endpoint& endpoint);

/// Calls `done` with the result of `look_up` on a detached thread on which no signal is handled. Errors: the system has
/// no thread to give; `done` is not called then.
[[nodiscard]] Result<void> look_up_detached(Endpoint endpoint, LookUp look_up,
                                            std::function<void(Result<Addresses>)> done);

/// Returns the addresses of `endpoint`, blocking until `deadline`. A name that this host knows itself is found also
/// when the deadline has passed. Errors: kNotFound (unknown, or no name server answered in time).
[[nodiscard]] Result<Addresses> resolve(const Endpoint& endpoint, TimePoint deadline, LookUp look_up = ask_system);

}  // namespace ddprun
