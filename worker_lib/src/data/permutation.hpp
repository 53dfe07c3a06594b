#pragma once
// PyTorch's randperm(n) after manual_seed(seed), bit for bit. Pure.
// Source: ATen's randperm_cpu. PyTorch 2 has a second loop from a 20th of 2^32 elements on, where a 32-bit draw would
// be visibly biased. PyTorch 1.13 has only the first.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ddp::detail {

inline constexpr std::size_t kLargePermutationFrom = 0xffffffffu / 20;

/// Returns the permutation with which DistributedSampler shuffles. Only the low 32 bits of `seed` count. Costs O(n).
[[nodiscard]] std::vector<std::int64_t> permutation(std::size_t n, std::uint64_t seed);

/// Both are a Fisher-Yates shuffle, forward and inside-out. They are declared so that tests reach the second one
/// without gigabytes.
[[nodiscard]] std::vector<std::int64_t> permutation_forward(std::size_t n, std::uint64_t seed);
[[nodiscard]] std::vector<std::int64_t> permutation_inside_out(std::size_t n, std::uint64_t seed);

}  // namespace ddp::detail
