#pragma once
// Finds out whether the server at a job's endpoint is a TCPStore, such as that of a torchrun, for the message of an
// agent that cannot join there. Private to the client.

#include <boost/asio/awaitable.hpp>

#include "common/clock.hpp"
#include "common/endpoint.hpp"

namespace ddprun::client {

/// Returns whether a TCPStore server of PyTorch 2.5 or later answers at an address of `endpoint` before `deadline`.
[[nodiscard]] boost::asio::awaitable<bool> is_tcp_store(Endpoint endpoint, TimePoint deadline);

}  // namespace ddprun::client
