#pragma once
// The arithmetic of reductions, as a table of functions per type and operation, for the best instruction set that this
// machine has. Whichever that is, the results have the same bits (of a NaN, that it is one).

#include <cstddef>

#include "ddp/types.hpp"

namespace ddp::detail {

/// `count` elements of each of `sources` (at least one), combined in their order, into `out`, which may be one of them.
using ReduceFn = void (*)(const void* const* sources, std::size_t source_count, std::size_t count, void* out);

/// The same, multiplied by `scale` and rounded, into each of `outputs`.
using ReduceIntoFn = void (*)(const void* const* sources, std::size_t source_count, std::size_t count, double scale,
                              void* const* outputs, std::size_t output_count);

/// f16 and bf16 accumulate in f32 and are rounded once, at the very end; all other types accumulate in themselves.
/// Integers wrap. Min and max of anything and NaN are NaN.
struct Reduction {
    ReduceFn reduce = nullptr;   ///< elements in, accumulators out
    ReduceFn combine = nullptr;  ///< accumulators in, accumulators out
    /// Accumulators in, elements out, multiplied by `scale`. Both may be the same memory where they are of the same
    /// type.
    void (*finish)(const void* accumulators, std::size_t count, double scale, void* elements) = nullptr;
    /// reduce() and finish() in one pass, into each of `outputs`, which may be sources.
    ReduceIntoFn reduce_into = nullptr;
    std::size_t accumulator_bytes = 0;
};

/// For operations that ProcessGroup lets pass. Avg is Sum here: its scale is the caller's.
[[nodiscard]] const Reduction& lookup(DType type, ReduceOp op);

}  // namespace ddp::detail
