#pragma once
// The jobs of this user that have workers on this machine: a worker's environment says where its job's daemon is.

#include <string>
#include <vector>

namespace ddprun::ctl {

struct Job {
    std::string run_id;
    std::string endpoint;
    friend auto operator<=>(const Job&, const Job&) = default;
};

/// Sorted, each job once. Processes whose environment cannot be read are another user's.
[[nodiscard]] std::vector<Job> find_jobs();

/// The job that an environment, as in /proc/PID/environ, speaks of. Pure; empty endpoint: none.
[[nodiscard]] Job job_of(const std::string& environment);

}  // namespace ddprun::ctl
