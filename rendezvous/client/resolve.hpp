#pragma once
// Addresses of a host name, without waiting for ever for a name server: getaddrinfo(3) cannot be interrupted, so it
// runs on a thread that nobody waits for. Asio's own resolver would be joined at the end of the program, for as long as
// it hangs.

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <functional>
#include <vector>

#include "common/clock.hpp"
#include "common/endpoint.hpp"
#include "common/error.hpp"

namespace ddprun::client {

using Addresses = std::vector<boost::asio::ip::tcp::endpoint>;

/// Asks the system; may block. Called on a thread of its own.
using LookUp = std::function<Result<Addresses>(const Endpoint&)>;
[[nodiscard]] Result<Addresses> ask_system(const Endpoint& endpoint);

/// A numeric address is taken as it is. Errors: the resolver's; kTimeout at the deadline.
[[nodiscard]] boost::asio::awaitable<Result<Addresses>> resolve(Endpoint endpoint, TimePoint deadline,
                                                                LookUp look_up = ask_system);

}  // namespace ddprun::client
