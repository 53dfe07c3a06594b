#pragma once
// Asks whether a ddprund answers at an address. Called by the node that has read the address at a meeting point.

#include "common/clock.hpp"
#include "launcher/meeting/https.hpp"
#include "launcher/meeting/meet.hpp"

namespace ddprun::launcher {

/// Returns the meaning of the answer to "GET /" at a published address. Pure.
[[nodiscard]] Reach reach_of(const Result<HttpAnswer>& answer);

/// Asks at `address`; blocks until `deadline` at most.
[[nodiscard]] Reach ask_daemon(const Endpoint& address, TimePoint deadline);

}  // namespace ddprun::launcher
