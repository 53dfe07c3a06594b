#pragma once
// Reads the variables of Flux, as its manual page flux-environment(7) describes them, and the nodes of the batch job
// around it.

#include <optional>

#include "common/error.hpp"
#include "common/system/environment.hpp"
#include "launcher/scheduler/allocation.hpp"

namespace ddprun::launcher {

/// As find_allocation(), for Flux.
[[nodiscard]] Result<std::optional<Allocation>> find_flux(const Environment& environment);

/// As step_size(), for Flux.
[[nodiscard]] std::optional<StepSize> flux_step_size(const Environment& environment);

}  // namespace ddprun::launcher
