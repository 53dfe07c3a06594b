#pragma once
// Chooses the fence of a node: the means of the kernel that ends every process that its workers have started, whatever
// is killed (docs/design/019). Called by launch(); main thread.

#include <optional>
#include <string>

#include "agent/guard/fence_group.hpp"
#include "common/error.hpp"
#include "launcher/options/options.hpp"

namespace ddprun::launcher {

/// The fence of this node, beside its guard.
struct ChosenFence {
    std::optional<agent::FenceGroup> group;  ///< empty: no control group
    bool pid_namespace = false;
    std::string description;  ///< which one, and why; for the log
};

/// Tries whether this machine offers the fence that --fence names, so that it can be refused before any process is
/// started. Errors: as make_fence().
[[nodiscard]] Result<void> probe_fence(Fence requested);

/// Makes the fence that --fence names, or the best one. Errors: Errc::kUsage, if this machine does not offer the one
/// that was named. Called while stop signals are held: the group must be removed.
[[nodiscard]] Result<ChosenFence> make_fence(Fence requested);

}  // namespace ddprun::launcher
