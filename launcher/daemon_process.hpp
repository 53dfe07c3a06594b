#pragma once
// Starts ddprund as a detached process in a session of its own, so that it outlives every agent, guard and launcher.
// Called by host_daemon before the process becomes a subreaper. A lookup of the rendezvous host that was given up may
// still have a thread; therefore the child makes only system calls before it becomes ddprund.

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/clock.hpp"
#include "common/endpoint.hpp"
#include "common/error.hpp"
#include "common/system/unique_fd.hpp"

namespace ddprun::launcher {

/// The settings of a daemon to start.
struct DaemonRequest {
    std::string program = "/proc/self/exe";    ///< to execute as ddprund, which ddprun itself is under that name
    Endpoint bind;                             ///< numeric address; port 0: any free one
    std::optional<std::string> store_address;  ///< numeric, of the stores; absent: that of `bind`
    std::optional<std::string> run_id;         ///< absent: the daemon generates one
    std::string step = {};                     ///< of an allocation; empty: none
    std::vector<std::string> hosts = {};       ///< of that step, to be named while they are missing
    std::chrono::milliseconds linger{10'000};  ///< how long it stays without any agent before the job is over
    std::optional<std::chrono::milliseconds> join_timeout;
    std::optional<std::chrono::milliseconds> last_call;
    std::optional<std::chrono::milliseconds> lost_after;  ///< silence after which a node is lost
    std::chrono::milliseconds ready_within{10'000};
    bool insecure = false;          ///< no TLS, even between hosts
    bool store_vouch = false;       ///< as DaemonConfig::store_vouch
    bool verbose = false;           ///< it logs its decisions, unless LOGLEVEL is set
    bool standby = false;           ///< it waits until the port is free
    bool at_meeting_point = false;  ///< its address is published; for messages
};

/// A daemon that listens.
struct RunningDaemon {
    Endpoint endpoint;  ///< where it listens
    std::string run_id;
    UniqueFd lifeline;  ///< a socket; each side reads end-of-file when the other one has ended
    pid_t pid = 0;      ///< 0: the daemon did not report it
};

/// StartingDaemon: owns a daemon that was executed and has not reported yet that it listens. Used on the main thread;
/// the process may fork meanwhile. The daemon ends soon if this object is destroyed.
class StartingDaemon {
public:
    /// Executes the daemon, which shares our stderr. Errors: kSystem.
    [[nodiscard]] static Result<StartingDaemon> start(const DaemonRequest& request);

    /// Returns the lifeline of a daemon that no one waits for.
    [[nodiscard]] UniqueFd take_lifeline() { return std::move(lifeline_); }
    /// Returns when the daemon listens; to be called once. Errors: kTimeout, kMalformed, kSystem; kClosed when it ended
    /// before it listened (its own message went to stderr).
    [[nodiscard]] Result<RunningDaemon> wait();

private:
    StartingDaemon(DaemonRequest request, TimePoint deadline, UniqueFd ready, UniqueFd lifeline)
        : request_(std::move(request)), deadline_(deadline), ready_(std::move(ready)), lifeline_(std::move(lifeline)) {}

    DaemonRequest request_;
    TimePoint deadline_;
    UniqueFd ready_;  ///< the daemon writes its ready line to the other end
    UniqueFd lifeline_;
};

/// Returns argv of the daemon, which writes its ready line to `ready_fd`, and holds the other end of its starter's
/// lifeline as `starter_fd`.
[[nodiscard]] std::vector<std::string> daemon_arguments(const DaemonRequest& request, int ready_fd, int starter_fd);

/// Parses {"address":"127.0.0.1","port":40001,"run_id":"…","pid":71}. Errors: Errc::kMalformed.
[[nodiscard]] Result<RunningDaemon> parse_ready_line(std::string_view line);

/// Starts the daemon and returns when it listens. Errors: of StartingDaemon.
[[nodiscard]] Result<RunningDaemon> start_daemon(const DaemonRequest& request);

/// Starts a daemon that listens when another process no longer holds the port. Returns its lifeline: it ends when that
/// is closed, unless an agent has joined it. Errors: kSystem.
[[nodiscard]] Result<UniqueFd> start_standby(DaemonRequest request);

/// Returns whether the daemon of this lifeline has ended, or does so within `limit`.
[[nodiscard]] bool daemon_ends_within(const UniqueFd& lifeline, std::chrono::milliseconds limit);

/// Ends the use of the daemon by its starter: it ends soon unless an agent has joined it.
void release_daemon(const UniqueFd& lifeline);

}  // namespace ddprun::launcher
