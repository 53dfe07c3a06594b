#pragma once
// Finds the jobs of this user that have a node on this machine: a worker's environment contains the endpoint of its
// job's daemon; a ddprun without workers, of a node that waits, a spare or a drained one, is connected to it.

#include <string>
#include <vector>

namespace ddprun::ctl {

/// A job that has a node of this user on this machine.
struct Job {
    std::string run_id;  ///< empty: not known, of a node without workers
    std::string endpoint;
    int workers = 0;      ///< on this machine
    std::string command;  ///< of one of them, cut, to recognise the job; of a node without workers that of ddprun
    friend auto operator<=>(const Job&, const Job&) = default;
};

/// Returns the jobs, sorted, each once. Processes whose environment cannot be read belong to another user.
[[nodiscard]] std::vector<Job> find_jobs();

/// Returns "train --steps 100" for a process' arguments as in /proc/PID/cmdline, for a terminal, at most 100 bytes.
/// Pure.
[[nodiscard]] std::string command_of(const std::string& arguments);

/// Returns "'run': train --steps 100, 4 workers on this machine", or "ddprun --nnodes 2 train, without workers here".
[[nodiscard]] std::string describe(const Job& job);

/// Returns the job that an environment, as in /proc/PID/environ, belongs to; with an empty endpoint if there is none.
/// Pure.
[[nodiscard]] Job job_of(const std::string& environment);

}  // namespace ddprun::ctl
