#pragma once
// Ends the processes that an earlier agent of this job has left on this machine: workers of an older generation, and
// their children, that would use GPUs, files and ports beside the new ones. Called by LocalGroup before the first
// group; one thread.

#include <string>
#include <string_view>

#include "common/ids.hpp"

namespace ddprun::agent {

/// The variable that holds the session of a job's daemon, which no other job has. Independent work that a worker has
/// submitted (sbatch, systemd-run) may inherit it, so is_in_step() is required, too.
inline constexpr char kSessionVariable[] = "DDPRUN_SESSION";

/// Returns whether the environment of a process (/proc/PID/environ) shows that it belongs to the job of `session`, and
/// to a generation older than `generation`. Pure.
[[nodiscard]] bool belongs_to_older_group(std::string_view environment, std::string_view session,
                                          Generation generation);

/// The job step in which a process runs.
struct JobStep {
    std::string slurm_job;  ///< its SLURM_JOB_ID; empty: none
    std::string group;      ///< its control group of version 2; empty: none
};

/// Returns whether a process runs in the step of this agent: in the same job of Slurm, and in the control group of the
/// agent or in a fence below that. Pure.
[[nodiscard]] bool is_in_step(const JobStep& process, const JobStep& own);

/// Sends SIGKILL to the processes of this user that belong to an older group and run in the step of this agent, and
/// waits a second at most until they have ended. Returns how many there were. An empty session, of an older daemon, has
/// none.
int end_older_processes(const std::string& session, Generation generation);

}  // namespace ddprun::agent
