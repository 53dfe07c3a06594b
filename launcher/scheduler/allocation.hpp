#pragma once
// Allocation: the nodes that a scheduler, or another program that starts ddprun once per node, gave to this start. Read
// from the variables of that starter, so it works inside containers. docs/design/030 has the reasons.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/error.hpp"
#include "common/system/environment.hpp"

namespace ddprun::launcher {

struct Allocation {
    std::string name;   ///< "slurm-71.0": the same on all nodes; no other step, job or attempt has it
    std::string title;  ///< "step 0 of SLURM job 71", for messages
    /// Of the step, in the order of their numbers, as the scheduler writes them. Empty: the starter names none, and the
    /// nodes meet in a directory of the user's home.
    std::vector<std::string> hosts;
    int nodes = 1;             ///< of the step
    int node = 0;              ///< the number of this node, an index of `hosts`
    int job_nodes = 1;         ///< of the whole job, of which the step may have a part
    std::string start_on_all;  ///< the line that starts ddprun once on each node of the job, with "…"
    std::optional<int> gpus;   ///< that the scheduler gave to the step on this node; nullopt: it does not say
    std::optional<int> cpus;   ///< the same for CPUs
    friend bool operator==(const Allocation&, const Allocation&) = default;
};

/// Returns the allocation of the innermost starter whose variables are set; nullopt: there is none. `nodes` is the
/// number that the user has passed, for starters that name none. Errors: kUsage, ddprun was started once for several
/// nodes, or several times on a node, with the line to use; or a variable is missing or malformed.
[[nodiscard]] Result<std::optional<Allocation>> find_allocation(const Environment& environment,
                                                                std::optional<int> nodes = {});

/// How often a starter has started this program at once.
struct StepSize {
    std::string_view starter;  ///< "srun"
    int tasks = 1;
    int nodes = 1;
    bool is_minimum = false;  ///< there may be more: the starter does not pass on how many
};

/// Returns the size of the step that runs this process; nullopt: it is in no step, or its variables do not say.
[[nodiscard]] std::optional<StepSize> step_size(const Environment& environment);

/// Returns when the scheduler ends the job; nullopt: it does not say. Errors: kUsage, the variable is malformed.
[[nodiscard]] Result<std::optional<std::chrono::system_clock::time_point>> job_end(const Environment& environment);

/// Returns the number of nodes of the batch job around this process, in which mpirun may have started it on fewer; 0:
/// it is not in a batch job, or the variables do not say.
[[nodiscard]] int nodes_of_batch_job(const Environment& environment);

/// Returns the ports at which the daemon of the step `name` may listen, in the order in which they are tried. The same
/// on all nodes.
[[nodiscard]] std::vector<std::uint16_t> ports_of_step(const std::string& name);

}  // namespace ddprun::launcher
