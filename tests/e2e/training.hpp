#pragma once
// The example trainer under ddprun with a small model, and its results.

#include <sys/types.h>

#include <boost/json/object.hpp>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/e2e/process.hpp"

namespace e2e {

/// The line: ddprun `launch` train --steps … with a small model, whose losses go to the file `losses`.
struct Training {
    std::vector<std::string> launch;  ///< options of ddprun; empty: the trainer alone, one rank
    int steps = 40;
    int global_batch = 32;       ///< divisible by every number of ranks in the test
    std::string checkpoint_dir;  ///< empty: no checkpoints
    int checkpoint_every = 10;
    std::filesystem::path losses;
    std::vector<std::string> more;  ///< further options of train
};
[[nodiscard]] Command command_of(const Training& training);

/// Reads step → loss, as text with all digits: equal text is equal bits.
[[nodiscard]] std::map<int, std::string> read_losses(const std::filesystem::path& file);

/// Waits until the job has trained `step` steps; fails the test when it ends before.
void reach_step(Process& job, const Training& training, int step);

/// Parses the JSON object on the last line of a trainer's stdout. Fails the test when there is none.
[[nodiscard]] boost::json::object final_json(const std::string& out);

/// Finds the worker of this rank in the sandbox, by its environment.
[[nodiscard]] std::optional<pid_t> worker(const Sandbox& sandbox, int rank, const std::string& program = "train");
/// Returns every process of the node of `worker`: guard, agent and workers.
[[nodiscard]] std::vector<pid_t> processes_of_node_of(pid_t worker);

}  // namespace e2e
