#pragma once
// The text of --dry-run: the program, the rendezvous, and a table of the workers of this command. Pure. Called by
// launch().

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/config/worker_binding.hpp"
#include "launcher/host/placement.hpp"
#include "launcher/options/options.hpp"
#include "launcher/program.hpp"

namespace ddprun::launcher {

/// All that the text is made from.
struct DryRun {
    const Options& options;
    const WorkerCommand& command;
    const Placement& placement;
    std::string host;               ///< this machine's name
    int slots = 1;                  ///< workers of a node
    std::vector<std::string> gpus;  ///< by local rank; empty: none is known
    /// Of all workers on this machine, as of bind_machine(); without --numa-binding one for all of them, whose threads
    /// are those of each.
    std::vector<agent::WorkerBinding> bindings;
    std::optional<std::string> threads;  ///< OMP_NUM_THREADS, if the user has set it
};

/// Returns the text, which ends with a line break. Neighbouring workers that differ in their numbers alone share a
/// line.
[[nodiscard]] std::string dry_run_text(const DryRun& run);

}  // namespace ddprun::launcher
