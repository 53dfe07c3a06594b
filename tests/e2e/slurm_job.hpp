#pragma once
// A job that a test submits with a script of scripts/slurm.

#include <string>
#include <utility>
#include <vector>

#include "tests/e2e/process.hpp"
#include "tests/e2e/slurm.hpp"

namespace e2e {

struct Submission {
    std::string script;                                      ///< its name in scripts/slurm
    std::vector<std::string> options;                        ///< of sbatch
    std::vector<std::string> arguments;                      ///< of the script
    std::vector<std::pair<std::string, std::string>> edits;  ///< texts of the script, each with its replacement
    std::map<std::string, std::string> env;
    std::string user = "root";
};

/// SlurmJob: submits a script in the folder of the sandbox, with ddprun and train on PATH, and follows the job.
class SlurmJob {
public:
    /// Fails the test when sbatch refuses the script, or when a text that `submission` edits is not in it.
    SlurmJob(const Sandbox& sandbox, const Slurm& slurm, const Submission& submission);

    [[nodiscard]] const std::string& id() const { return id_; }
    /// Returns a field that `scontrol show job` prints of this job, or of another one, such as JobState.
    [[nodiscard]] std::string field(const std::string& name) const { return field(name, id_); }
    [[nodiscard]] std::string field(const std::string& name, const std::string& job) const;
    /// Waits until the job has ended for good, and returns its state and exit code: "COMPLETED 0:0".
    [[nodiscard]] std::string end(Seconds limit) const { return end(limit, id_); }
    [[nodiscard]] std::string end(Seconds limit, const std::string& job) const;
    /// Waits until SLURM has requeued the job, and returns whether it has.
    [[nodiscard]] bool is_requeued(Seconds limit) const;
    /// Returns what all attempts have printed; `name`: its file, if it does not have the name of the job.
    [[nodiscard]] std::string output(const std::string& name = "") const;

private:
    [[nodiscard]] std::string login(std::vector<std::string> argv) const;

    const Sandbox& sandbox_;
    const Slurm& slurm_;
    std::string name_;
    std::string id_;
};

/// Returns arguments for a script of scripts/slurm: a small model, whose losses go to the file "losses" of the sandbox.
[[nodiscard]] std::vector<std::string> small_training(const Sandbox& sandbox, int steps);

/// Waits until the training of `job` has reached `step`. Fails the test when it does not.
void reach_step(const Sandbox& sandbox, const SlurmJob& job, int step);

/// Checks that the losses are, bit by bit, those of a run without failures on two nodes with two workers each.
void check_losses(const Sandbox& sandbox, int steps);

}  // namespace e2e
