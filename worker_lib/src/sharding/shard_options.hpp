#pragma once
// Checks of the arguments of a ShardedParameters, on this rank and among all.

#include <string_view>
#include <vector>

#include "ddp/sharding.hpp"

namespace ddp::detail {

/// The types that an object works with.
struct ShardTypes {
    DType main = DType::F32;      ///< of parts and of shards()
    DType gathered = DType::F32;  ///< of whole parameters
    DType reduced = DType::F32;   ///< of whole gradients
};

/// Returns "Full", for example.
[[nodiscard]] std::string_view name_of(Sharding sharding);

/// Collective. Returns the types. Throws Error{InvalidArgument} for what this rank finds wrong, Error{Mismatch} on all
/// ranks if they have passed different units or options.
[[nodiscard]] ShardTypes agree_on_units(ProcessGroup& group, const std::vector<std::vector<ParamSpec>>& units,
                                        const ShardOptions& options);

}  // namespace ddp::detail
