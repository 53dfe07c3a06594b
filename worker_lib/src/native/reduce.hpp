#pragma once
// The arithmetic of reductions, as a table of functions per type and operation. The seam for faster kernels: whatever
// lookup() returns must give the same bits as the plain loops behind it today.

#include <cstddef>

#include "ddp/types.hpp"

namespace ddp::detail {

/// `count` elements of each of `sources` (at least one), combined in their order, into `out`, which may be one of them.
using ReduceFn = void (*)(const void* const* sources, std::size_t source_count, std::size_t count, void* out);

/// f16 and bf16 accumulate in f32 and are rounded once, at the very end; all other types accumulate in themselves.
/// Integers wrap. Min and max of anything and NaN are NaN.
struct Reduction {
    ReduceFn reduce = nullptr;   ///< elements in, accumulators out
    ReduceFn combine = nullptr;  ///< accumulators in, accumulators out
    /// Accumulators in, elements out, multiplied by `scale`. Both may be the same memory where they are of the same
    /// type.
    void (*finish)(const void* accumulators, std::size_t count, double scale, void* elements) = nullptr;
    std::size_t accumulator_bytes = 0;
};

/// For operations that ProcessGroup lets pass. Avg is Sum here: its scale is the caller's.
[[nodiscard]] const Reduction& lookup(DType type, ReduceOp op);

}  // namespace ddp::detail
