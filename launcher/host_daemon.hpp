#pragma once
// Hosts the rendezvous at an endpoint of this machine, or finds out that somebody hosts it there already: the second of two
// terminals joins what the first has started. docs/design/005 has the reasons.

#include "common/endpoint.hpp"
#include "common/error.hpp"
#include "launcher/daemon_process.hpp"
#include "launcher/port_holder.hpp"

namespace ddprun::launcher {

/// Pure: may this holder of the port be joined? A ddprund is, and so is one that cannot be looked at (it answers for itself
/// when the agent connects).
[[nodiscard]] bool is_joinable(const PortHolder& holder);

/// 0, or why this endpoint cannot be bound now (an errno). Binds and lets go; takes the port from nobody.
[[nodiscard]] int probe_bind(const Endpoint& endpoint);

struct Hosted {
    Endpoint endpoint;      ///< for the agent of this node
    bool started_here = false;
    UniqueFd lifeline;      ///< of a daemon that was started here
};

/// Starts the daemon that `request` describes, or joins the one that holds its port. Of several callers at one moment one starts
/// it and the others join. Errors: kInUse with the holder's pid and command; kRefused, kSystem when the address cannot be bound;
/// what start_daemon() says.
[[nodiscard]] Result<Hosted> host_or_join(const DaemonRequest& request);

}  // namespace ddprun::launcher
