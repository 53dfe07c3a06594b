#pragma once
// The text of --dry-run: the program, the rendezvous, and a table of the workers of this command. Pure. Called by
// launch().

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/host/placement.hpp"
#include "launcher/options/options.hpp"
#include "launcher/program.hpp"
#include "launcher/worker_resources.hpp"

namespace ddprun::launcher {

/// All that the text is made from.
struct DryRun {
    const Options& options;
    const std::vector<ResolvedProgram>& programs;  ///< those of the options
    const Placement& placement;
    std::string host;  ///< this machine's name
    int slots = 1;     ///< workers of all programs on a node
    /// As of assign_resources(); without --numa-binding one binding for all workers, whose threads are those of each.
    WorkerResources resources;
    std::optional<std::string> threads;  ///< OMP_NUM_THREADS, if the user has set it
};

/// Returns the text, which ends with a line break. Neighbouring workers of one program that differ only in their
/// numbers share a line.
[[nodiscard]] std::string dry_run_text(const DryRun& run);

}  // namespace ddprun::launcher
