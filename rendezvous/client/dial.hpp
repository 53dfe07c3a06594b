#pragma once
// Connects to a daemon that may not run yet: resolves the name, tries every address, and repeats that after a short
// pause. Private to the client.

#include <boost/asio/awaitable.hpp>

#include <memory>

#include "common/clock.hpp"
#include "common/endpoint.hpp"
#include "common/error.hpp"
#include "rendezvous/client/pace.hpp"
#include "rendezvous/transport/channel.hpp"
#include "rendezvous/transport/tls.hpp"

namespace ddprun::client {

/// Connects to the daemon; tries at least once, and until `deadline`. Errors: those of ControlClient::connect().
/// Reports a longer wait on the log.
[[nodiscard]] boost::asio::awaitable<Result<std::shared_ptr<transport::Channel>>> dial(
    Endpoint endpoint, TimePoint deadline, Pace pace = {}, transport::Security security = {});

/// Returns what to do about a daemon at `endpoint` that no try has reached, a sentence without its full stop. `cause`:
/// of the newest try. Pure.
[[nodiscard]] std::string remedy(const Endpoint& endpoint, const Error& cause);

}  // namespace ddprun::client
