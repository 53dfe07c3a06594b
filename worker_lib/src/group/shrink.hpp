#pragma once
// ProcessGroup::shrink(): makes a new group of the surviving ranks, once they agree which ranks those are. Called by
// GroupImpl on the caller's thread.

#include <memory>
#include <span>

#include "worker_lib/src/group/backend.hpp"
#include "worker_lib/src/group/shrink/agreement.hpp"

namespace ddp::detail {

/// Returns the group of all ranks of `group` without `exclude`. Throws as ProcessGroup::shrink() does.
/// history   of the group's earlier calls; one thread at a time
[[nodiscard]] std::unique_ptr<ProcessGroup> shrink_group(const GroupSpec& group, BackendImpl& backend,
                                                         ShrinkHistory& history, std::span<const int> exclude);

}  // namespace ddp::detail
