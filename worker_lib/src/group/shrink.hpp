#pragma once
// ProcessGroup::shrink(): makes a new group of the surviving ranks, once they agree which ranks those are. Called by
// GroupImpl on the caller's thread.

#include <memory>
#include <span>
#include <vector>

#include "worker_lib/src/group/backend.hpp"
#include "worker_lib/src/group/shrink/survivor_agreement.hpp"

namespace ddp::detail {

/// Returns the ranks that a call of shrink() excludes, sorted, each once. Throws Error{InvalidArgument} if one does not
/// exist, or if the caller or all ranks are among them.
[[nodiscard]] std::vector<int> checked_exclusion(const GroupSpec& group, std::span<const int> exclude);

/// Returns the group of all ranks of `group` without `excluded`. Throws as ProcessGroup::shrink() does.
/// history    of the group's earlier calls; one thread at a time
/// excluded   from checked_exclusion()
[[nodiscard]] std::unique_ptr<ProcessGroup> shrink_group(const GroupSpec& group, BackendImpl& backend,
                                                         ShrinkHistory& history, std::vector<int> excluded);

}  // namespace ddp::detail
