#pragma once
// Completes the options by what a scheduler's variables say. Pure. Called by parse_options(); docs/design/030 has the
// rules.

#include "common/error.hpp"
#include "common/system/environment.hpp"
#include "launcher/options/options.hpp"

namespace ddprun::launcher {

/// What the user has passed, as an option or a variable of it.
struct Given {
    bool nodes = false;    ///< --nnodes
    bool workers = false;  ///< --nproc-per-node or --gpus
};

/// Sets the allocation, and from it the number of nodes, the workers per node and the run id that the user has left
/// open. Does nothing without a scheduler, and leaves the nodes that the user has named. Errors: kUsage, those of
/// find_allocation(), and a world that would be smaller than the allocation.
[[nodiscard]] Result<void> complete_from_allocation(Options& options, const Given& given,
                                                    const Environment& environment);

}  // namespace ddprun::launcher
