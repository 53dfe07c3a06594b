#pragma once
// A state as the checkpoint files see it: checks it, orders its tensors, and compares it with a file. Pure.

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "common/checkpoint/safetensors.hpp"
#include "ddp/checkpoint_state.hpp"
#include "ddp/types.hpp"

namespace ddp::detail {

/// Returns whole tensors, of one dimension, as shards that begin at 0.
[[nodiscard]] std::vector<NamedShard> as_shards(std::span<const NamedBuffer> state);

/// Returns the number of elements of the whole tensor. It must not be too large, which check_state() finds.
[[nodiscard]] std::size_t elements_of(const NamedShard& shard);

/// Throws Error{InvalidArgument} for a state that a group of `backend` cannot store: device memory on the native
/// backend, null or misaligned buffers, parts outside their tensor, and names that are empty, duplicate, or contain
/// control characters.
void check_state(std::span<const NamedShard> state, Backend backend);

/// Returns "tensor 3 'fc1.weight' f32[64,64]", and " on cuda" for a whole tensor in device memory.
[[nodiscard]] std::string describe(std::size_t i, const NamedShard& shard, bool is_whole);

/// The order of a state's tensors in a file: those of larger elements come first, so that each is aligned.
struct FileOrder {
    std::vector<ddprun::checkpoint::Tensor> tensors;
    std::vector<std::size_t> in_state;  ///< the index of each of them in the state
};
[[nodiscard]] FileOrder order_of(std::span<const NamedShard> state);

/// Returns why a file with these tensors cannot be loaded into `state`, with the first tensor that differs; empty if it
/// can. Shapes are compared if both have several dimensions.
[[nodiscard]] std::string difference(std::span<const ddprun::checkpoint::Tensor> tensors,
                                     std::span<const NamedShard> state);

}  // namespace ddp::detail
