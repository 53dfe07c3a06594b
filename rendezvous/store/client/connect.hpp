#pragma once
// Connects the client to its store: tries with growing pauses until a TCPStore answers. Any thread.

#include <chrono>
#include <functional>
#include <string>

#include "common/clock.hpp"
#include "common/endpoint.hpp"
#include "common/error.hpp"
#include "rendezvous/store/client/stream.hpp"

namespace ddprun::store {

/// Reports once that a store has not been reached for a while.
struct SlowNotice {
    Duration after = std::chrono::seconds(5);
    /// Called on the thread that connects: "cannot reach the store at …". Empty: no report.
    std::function<void(const std::string& text)> report = {};
};

/// Connects until `deadline`. Errors, each with the endpoint, the number of tries, the last cause and advice:
/// kUnreachable (nothing listens there, no route, unknown host, closed each time), kTimeout (a server listens and does
/// not answer), kMismatch (the server is not a TCPStore; not tried again).
[[nodiscard]] Result<ClientStream> connect_stream(const Endpoint& endpoint, TimePoint deadline,
                                                  const SlowNotice& notice = {});

}  // namespace ddprun::store
