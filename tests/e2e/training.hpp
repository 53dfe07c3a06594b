#pragma once
// The example trainer under ddprun, in a size that a test can afford, and what it reports.

#include <sys/types.h>

#include <boost/json/object.hpp>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/e2e/process.hpp"

namespace e2e {

/// ddprun `launch` train --steps … with a small model; its losses go to `losses`, by default <sandbox>/losses.
struct Training {
    std::vector<std::string> launch;      ///< options of ddprun; empty: the trainer alone, one rank
    int steps = 40;
    int global_batch = 32;                ///< divisible by every number of ranks that the test comes to
    std::string checkpoint_dir;           ///< empty: no checkpoints
    int checkpoint_every = 10;
    std::filesystem::path losses;
    std::vector<std::string> more;        ///< further options of train
};
[[nodiscard]] Command command_of(const Training& training);

/// Step → loss, as text with all digits: equal text is equal bits.
[[nodiscard]] std::map<int, std::string> read_losses(const std::filesystem::path& file);

/// The JSON object on the last line of a trainer's stdout. Fails the test when there is none.
[[nodiscard]] boost::json::object final_json(const std::string& out);

/// The worker of this rank in the sandbox, by its environment.
[[nodiscard]] std::optional<pid_t> worker(const Sandbox& sandbox, int rank);
/// Every process of the node of that GROUP_RANK: its workers, their agent and its guard.
[[nodiscard]] std::vector<pid_t> processes_of_node_of(pid_t worker);

}  // namespace e2e
