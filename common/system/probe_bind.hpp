#pragma once
// Finds out whether a TCP port of this machine is free.

#include "common/endpoint.hpp"

namespace ddprun {

/// Tries to bind `endpoint` (numeric address) as a listener does, and releases it at once. Returns 0, or the errno of
/// the refusal.
[[nodiscard]] int probe_bind(const Endpoint& endpoint);

}  // namespace ddprun
