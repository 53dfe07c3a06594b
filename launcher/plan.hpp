#pragma once
// Plan: all decisions about a job that are made before its first process is started. Made from the options and this
// machine; launch() acts on it.

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "agent/config/agent_config.hpp"
#include "common/clock.hpp"
#include "common/error.hpp"
#include "common/system/unique_fd.hpp"
#include "launcher/host/placement.hpp"
#include "launcher/host/temporary_log_dir.hpp"
#include "launcher/options/options.hpp"
#include "launcher/program.hpp"
#include "launcher/worker_resources.hpp"

namespace ddprun::launcher {

struct Plan {
    Options options;
    std::vector<ResolvedProgram> programs;  ///< those of the options
    int slots = 1;                          ///< workers of all programs on a node
    int cpus = 1;
    std::vector<std::string> device_variables;  ///< of --virtual-local-rank
    WorkerResources resources;
    Placement placement;
    protocol::Launch launch;
    std::string error_file;  ///< of this ddprun, as its parent wants it; empty: none
    UniqueFd events;         ///< of --events, open for appending
    std::chrono::system_clock::time_point began_at = std::chrono::system_clock::now();
    TimePoint began = Clock::now();               ///< the same, for durations
    TemporaryLogDir temporary_log_dir;            ///< of emulated nodes, in their launcher
    std::optional<std::string> local_address;     ///< of --local-addr, numeric
    std::vector<std::string> endpoint_addresses;  ///< of the host that the user named, as far as it was looked up
};

/// The reason why a job cannot run.
struct Refusal {
    Error error;
    int code;  ///< of ddprun
};

/// Completes `plan` from its options and this machine; nothing is started. Returns the reason if the job cannot run.
[[nodiscard]] std::optional<Refusal> prepare(Plan& plan, const Environment& environment);

/// Returns the addresses of `host`; none, with a warning that `remedy`, a sentence without its full stop, ends, if no
/// name server has answered.
[[nodiscard]] std::vector<std::string> look_up(const std::string& host, std::string_view remedy);

}  // namespace ddprun::launcher
