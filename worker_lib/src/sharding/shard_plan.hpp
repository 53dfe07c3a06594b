#pragma once
// The memory that a ShardedParameters takes on each rank. Pure.

#include <vector>

#include "ddp/sharding.hpp"
#include "worker_lib/src/sharding/shard_layout.hpp"
#include "worker_lib/src/sharding/shard_options.hpp"

namespace ddp::detail {

/// Returns what UnitGathers and UnitReductions allocate for these arguments. `mapped`: units are no copies.
[[nodiscard]] ShardPlan plan_memory(const ShardLayout& layout, const std::vector<std::vector<ParamSpec>>& units,
                                    const ShardTypes& types, const ShardOptions& options, bool mapped);

}  // namespace ddp::detail
