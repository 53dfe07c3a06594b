#pragma once
// Hosts the rendezvous at an endpoint of this machine, or joins the daemon that is there already: the second of two
// terminals joins what the first has started. Called by launch(); docs/design/005 has the reasons.

#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "common/endpoint.hpp"
#include "common/error.hpp"
#include "common/system/port_holder.hpp"
#include "launcher/daemon_process.hpp"

namespace ddprun::launcher {

/// Returns whether the holder of the port may be joined: a ddprund, or a process that cannot be inspected (the agent
/// finds out when it connects), of the user of this process.
[[nodiscard]] bool is_joinable(const PortHolder& holder);

/// The daemon of this job, started here or joined.
struct Hosted {
    Endpoint endpoint;  ///< for the agent of this node
    bool started_here = false;
    UniqueFd lifeline;  ///< of a daemon that was started here
    pid_t pid = 0;      ///< of a daemon that was started here
    /// Of a daemon that takes the port when the one that was joined here has ended, which may be that of a job that is
    /// ending. To be closed when this node was admitted.
    UniqueFd standby = {};
};

/// Starts the daemon that `request` describes, or joins the one that holds its port. If several processes call this at
/// once, one starts the daemon and the others join it. Errors: kInUse with the holder's pid and command; kRefused,
/// kSystem when the address cannot be bound; those of start_daemon().
[[nodiscard]] Result<Hosted> host_or_join(const DaemonRequest& request);

/// Joins the daemon of this user that serves the job step of `request` at one of `ports`, else starts one at the first
/// port that is free. Errors: kInUse, all are taken; kSystem when the address cannot be bound; those of start_daemon().
[[nodiscard]] Result<Hosted> host_or_join_step(DaemonRequest request, const std::vector<std::uint16_t>& ports);

/// DaemonOfJob: owns the daemon of this job while it may still be starting. Used on the main thread; the process may
/// fork meanwhile.
class DaemonOfJob {
public:
    /// As host_or_join(). A daemon on a free port has no rivals, so it is only started: the launcher prepares the agent
    /// while it loads.
    [[nodiscard]] static Result<DaemonOfJob> begin(const DaemonRequest& request);
    explicit DaemonOfJob(Hosted hosted) : daemon_(std::move(hosted)) {}

    /// Returns when the daemon listens; to be called once. Errors: those of start_daemon().
    [[nodiscard]] Result<Hosted> wait();

private:
    explicit DaemonOfJob(StartingDaemon starting) : daemon_(std::move(starting)) {}

    std::variant<Hosted, StartingDaemon> daemon_;
};

}  // namespace ddprun::launcher
