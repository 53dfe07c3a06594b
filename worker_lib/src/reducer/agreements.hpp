#pragma once
// Agreements between the ranks of a reducer: values that they compare or share besides gradients. Everything here is
// collective over the reducer's group and throws what its collectives throw. The owner's thread.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ddp/reducer.hpp"

namespace ddp::detail {

class ParameterReader;

/// Returns the bucket plan, the same on all ranks. `device`: of the gradients. Throws Error{Mismatch} if parameters,
/// options or plans differ, and Error{InvalidArgument} if they are wrong on all ranks alike.
[[nodiscard]] BucketPlan agree_on_plan(ProcessGroup& group, const std::vector<ParamSpec>& params,
                                       const ReducerOptions& options, Device device);

/// Throws Error{Mismatch} if the ranks' next backwards are not all with or all without sync. `steps`: number of
/// synchronised ones so far.
void agree_on_step(ProcessGroup& group, std::uint64_t steps, bool sync);

/// Returns rank 0's ready order; empty: it has none yet. `own`: this rank's, empty or each of the `params` once.
[[nodiscard]] std::vector<std::size_t> share_ready_order(ProcessGroup& group, const std::vector<std::size_t>& own,
                                                         std::size_t params);

/// See GradientReducer::verify_parameters.
void verify_parameters(ProcessGroup& group, const std::vector<ParamSpec>& specs, std::span<const Buffer> params,
                       ParameterReader& reader);

/// Returns the union of all ranks' flags, one per parameter.
[[nodiscard]] std::vector<bool> used_on_any_rank(ProcessGroup& group, const std::vector<bool>& used);

}  // namespace ddp::detail
