#pragma once
// The lines of a run's trace about events and actions of the daemon.

#include <string>

#include "rendezvous/daemon/decisions.hpp"

namespace ddprun::sim {

/// Returns an empty line for events that are not worth one, as a tick.
[[nodiscard]] std::string describe(const daemon::DaemonHappening& what);
[[nodiscard]] std::string describe(const daemon::DaemonAction& action);

}  // namespace ddprun::sim
