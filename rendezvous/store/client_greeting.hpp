#pragma once
// How the client finds its store: tries with growing pauses until one answers as a TCPStore does.

#include "common/clock.hpp"
#include "common/endpoint.hpp"
#include "common/error.hpp"
#include "rendezvous/store/client_impatience.hpp"
#include "rendezvous/store/client_stream.hpp"

namespace ddprun::store {

/// Errors, each with the endpoint, the number of tries, the last cause and what to look at: kUnreachable (nobody
/// listens there, no route, unknown host, closed each time), kTimeout (something listens and says nothing), kMismatch
/// (what answers is no TCPStore; not tried again).
[[nodiscard]] Result<ClientStream> connect_stream(const Endpoint& endpoint, TimePoint deadline,
                                                  const Impatience& impatience = {});

}  // namespace ddprun::store
