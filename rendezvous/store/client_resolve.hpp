#pragma once
// Addresses of the store's host for the client, by a deadline. Any thread.

#include <sys/socket.h>

#include <functional>
#include <vector>

#include "common/clock.hpp"
#include "common/endpoint.hpp"
#include "common/error.hpp"

namespace ddprun::store {

struct SocketAddress {
    sockaddr_storage bytes{};
    socklen_t size = 0;
};
/// In the resolver's order, IPv6 and IPv4.
using Addresses = std::vector<SocketAddress>;

/// Asks the system; may block for as long as it likes. Errors: kNotFound.
using LookUp = std::function<Result<Addresses>(const Endpoint&)>;
[[nodiscard]] Result<Addresses> ask_system(const Endpoint& endpoint);

/// A numeric address is taken as it is, without asking anybody. Errors: kNotFound (unknown, or nobody told in time).
[[nodiscard]] Result<Addresses> resolve(const Endpoint& endpoint, TimePoint deadline, LookUp look_up = ask_system);

}  // namespace ddprun::store
