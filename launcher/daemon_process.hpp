#pragma once
// Starts ddprund as a process of its own: child of nobody, in a session of its own, so that no ending of an agent, guard or
// launcher takes the rendezvous along. Call before the process has threads and before it becomes a subreaper.

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/endpoint.hpp"
#include "common/error.hpp"
#include "common/unique_fd.hpp"

namespace ddprun::launcher {

struct DaemonRequest {
    std::filesystem::path program;              ///< of ddprund
    Endpoint bind;                              ///< numeric address; port 0: any free one
    std::optional<std::string> run_id;          ///< absent: the daemon draws one
    std::chrono::milliseconds linger{10'000};   ///< how long it stays when no agent is left and the job is not over
    std::optional<std::chrono::milliseconds> join_timeout;
    std::optional<std::chrono::milliseconds> last_call;
    std::chrono::milliseconds ready_within{10'000};
};

struct RunningDaemon {
    Endpoint endpoint;          ///< where it listens
    std::string run_id;
    UniqueFd lifeline;          ///< reads end-of-file when the daemon is gone
};

/// argv of the daemon, `ready_fd` being where it is to write its ready line.
[[nodiscard]] std::vector<std::string> daemon_arguments(const DaemonRequest& request, int ready_fd);

/// {"address":"127.0.0.1","port":40001,"run_id":"…"} as the daemon writes it. Errors: Errc::kMalformed.
[[nodiscard]] Result<RunningDaemon> parse_ready_line(std::string_view line);

/// Returns when the daemon listens. Its stdout and stderr are ours. Errors: kTimeout, kMalformed, kSystem; kClosed when it
/// ended before it listened (its own message went to stderr).
[[nodiscard]] Result<RunningDaemon> start_daemon(const DaemonRequest& request);

/// Waits until the daemon of this lifeline is gone, so that nothing of a job is left when its ddprun ends; false after `limit`.
bool await_end_of_daemon(const UniqueFd& lifeline, std::chrono::milliseconds limit);

}  // namespace ddprun::launcher
