#pragma once
// Reduction: the arithmetic of reductions, a table of functions for each type and operation, for the best instruction
// set of this machine. All instruction sets give the same bits, except for those of a NaN. Pure.

#include <cstddef>
#include <vector>

#include "ddp/types.hpp"

namespace ddp::detail {

/// Combines `count` elements of each of `sources` (at least one), in their order, into `out`, which may be one of them.
using ReduceFn = void (*)(const void* const* sources, std::size_t source_count, std::size_t count, void* out);

/// Combines the sources as ReduceFn does, multiplies by `scale` (floats only), rounds once, and stores to each of
/// `outputs`, which may be sources.
using ReduceIntoFn = void (*)(const void* const* sources, std::size_t source_count, std::size_t count, double scale,
                              void* const* outputs, std::size_t output_count);

/// The functions for one type and operation. f16 and bf16 accumulate in f32 and are rounded once, at the end; any other
/// type is its own accumulator. Integers wrap. Min and max of anything and NaN are NaN.
struct Reduction {
    ReduceFn reduce = nullptr;   ///< elements in, accumulators out
    ReduceFn combine = nullptr;  ///< accumulators in, accumulators out
    /// Accumulators in, elements out, multiplied by `scale`. Both may be the same memory if they have the same type.
    void (*finish)(const void* accumulators, std::size_t count, double scale, void* elements) = nullptr;
    /// reduce() and finish() in one pass, into each of `outputs`, which may be sources.
    ReduceIntoFn reduce_into = nullptr;
    std::size_t accumulator_bytes = 0;
};

/// Returns the functions for an operation that ProcessGroup has accepted. Avg is Sum here: the caller passes the scale.
[[nodiscard]] const Reduction& lookup(DType type, ReduceOp op);

/// The functions for one instruction set that reductions are compiled for and that this machine has.
struct InstructionSet {
    const char* name;
    const Reduction& (*lookup)(DType type, ReduceOp op);
};
/// Returns them all, the best one first: lookup() is that of the first one. The last one runs on every machine.
[[nodiscard]] std::vector<InstructionSet> instruction_sets();

}  // namespace ddp::detail
