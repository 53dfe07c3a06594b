#pragma once
// Recognises processes that another starter of MPI programs has started, by PMI and PMIx. Pure.

#include <optional>

#include "common/error.hpp"
#include "common/system/environment.hpp"
#include "launcher/scheduler/allocation.hpp"

namespace ddprun::launcher {

/// Refuses several processes, because neither their hosts nor the nodes are known; nullopt: there is one.
[[nodiscard]] Result<std::optional<Allocation>> find_pmi(const Environment& environment);

/// As step_size(), for PMI.
[[nodiscard]] std::optional<StepSize> pmi_step_size(const Environment& environment);

}  // namespace ddprun::launcher
