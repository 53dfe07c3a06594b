#pragma once
// Ends the processes that an earlier agent of this job has left on this machine: workers of an older generation, and
// their children, that would use GPUs, files and ports beside the new ones. Called by LocalGroup before the first
// group; one thread.

#include <sys/types.h>

#include <set>
#include <string>
#include <string_view>

#include "common/ids.hpp"

namespace ddprun::agent {

/// The variable that holds the session of a job's daemon, which no other job has. Independent work that a worker has
/// submitted (sbatch, systemd-run) may inherit it, so the job of Slurm and the control group are compared, too.
inline constexpr char kSessionVariable[] = "DDPRUN_SESSION";

/// Identifies the step of a job whose older processes are ended.
struct JobStep {
    std::string session;      ///< of the job's daemon; empty: an older daemon, whose processes cannot be known
    std::string slurm_job;    ///< SLURM_JOB_ID; empty: none
    Generation generation{};  ///< the first one that is not older
};

/// Returns whether the environment of a process (/proc/PID/environ) shows that it belongs to this step, and to an older
/// generation. Pure.
[[nodiscard]] bool belongs_to_older_group(std::string_view environment, const JobStep& step);

/// Returns whether a process in the control group `group` (of version 2; empty: none) may belong to the step of an
/// agent in `own`: it is the same one, or a fence below that. All login sessions of one user count as one: the user may
/// have come back after a broken connection. Pure.
[[nodiscard]] bool is_in_step(std::string_view group, std::string_view own);

/// The processes that end_older_processes() has found.
struct OlderProcesses {
    int killed = 0;
    std::set<pid_t> unreadable;  ///< they may belong to an older group: the kernel does not show their environment
};

/// Sends SIGKILL to the processes of this user that belong to an older group and run in the step of this agent, and
/// waits until they have ended; it takes a second at most.
OlderProcesses end_older_processes(const std::string& session, Generation generation);

}  // namespace ddprun::agent
