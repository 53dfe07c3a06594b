#pragma once
// The measurements between nodes, over the world's own sends, receives and all-reduces. All of them are collective:
// each rank makes the same calls in the same order. They throw as the calls of ddp::ProcessGroup do.

#include <optional>
#include <vector>

#include "ddp/process_group.hpp"
#include "worker_lib/check/facts.hpp"

namespace ddp::check {

/// Measures the clock of each leader against that of rank 0, one after the other. Returns the offsets by leader on rank
/// 0, and an empty list on the other ranks.
/// leaders  the first rank of each node; rank 0 is the first. Ranks that are not in it do nothing.
[[nodiscard]] std::vector<std::optional<ClockOffset>> measure_clocks(ProcessGroup& world,
                                                                     const std::vector<int>& leaders);

/// Exchanges messages with the leader of another node in each round of rounds_of(), about 0.2 s with each. Returns the
/// links that this rank timed: those to nodes behind its own.
[[nodiscard]] std::vector<Link> measure_links(ProcessGroup& world, const std::vector<int>& leaders);

/// Bytes of the floats in the all-reduce.
inline constexpr std::int64_t kAllReduceBytes = std::int64_t{4} << 20;

/// Sums integers and floats over all ranks, and compares every element with the sum that this rank computes itself. All
/// sums are exact in their type. Sets the members of `result` that are about it.
void verify_all_reduce(ProcessGroup& world, RankResult& result);

}  // namespace ddp::check
