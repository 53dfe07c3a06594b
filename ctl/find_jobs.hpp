#pragma once
// The jobs of this user that have workers on this machine: a worker's environment says where its job's daemon is.

#include <string>
#include <vector>

namespace ddprun::ctl {

struct Job {
    std::string run_id;
    std::string endpoint;
    int workers = 0;      ///< on this machine
    std::string command;  ///< of one of them, cut: what people know a job by
    friend auto operator<=>(const Job&, const Job&) = default;
};

/// Sorted, each job once. Processes whose environment cannot be read are another user's.
[[nodiscard]] std::vector<Job> find_jobs();

/// "train --steps 100", of a process' arguments as in /proc/PID/cmdline. Pure; for a terminal, at most 100 bytes.
[[nodiscard]] std::string command_of(const std::string& arguments);

/// "'run': train --steps 100, 4 workers on this machine"
[[nodiscard]] std::string describe(const Job& job);

/// The job that an environment, as in /proc/PID/environ, speaks of. Pure; empty endpoint: none.
[[nodiscard]] Job job_of(const std::string& environment);

}  // namespace ddprun::ctl
