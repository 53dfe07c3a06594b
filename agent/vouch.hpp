#pragma once
// Answers the daemon's question for the user of a client of a store (--store-vouch, docs/design/028). Used by
// DaemonLink. Any thread.

#include "rendezvous/protocol/messages.hpp"

namespace ddprun::agent {

/// Returns the answer to `request`, from the socket diagnostics of this host.
[[nodiscard]] protocol::Vouch vouch_for(const protocol::VouchRequest& request);

}  // namespace ddprun::agent
