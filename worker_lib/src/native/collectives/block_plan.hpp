#pragma once
// BlockPlan: maps the bytes of each rank's input to bytes of each rank's output, for the collectives that only move
// data. Every rank computes the same plan, so messages need no directory of their contents. Pure.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "worker_lib/src/operation/operation.hpp"

namespace ddp::detail {

/// Bytes [from, from + bytes) of the source's input, which become [to, to + bytes) of the destination's output.
struct Block {
    static constexpr int kAllRanks = -1;
    int source = 0;
    int destination = 0;   ///< or kAllRanks
    std::size_t slot = 0;  ///< its number among the blocks of its source
    std::size_t from = 0;
    std::size_t to = 0;
    std::size_t bytes = 0;
};

class BlockPlan {
public:
    /// Makes the plan of an operation of any moving kind but kAllToAllV, in a group of `ranks`.
    BlockPlan(const Operation& operation, int ranks);
    /// Returns the plan in which every rank gives `bytes` bytes to all ranks.
    [[nodiscard]] static BlockPlan all_gather(std::size_t bytes, int ranks);
    /// Returns the plan in which rank i gives rank j `sends[i * ranks + j]` elements of `width` bytes.
    [[nodiscard]] static BlockPlan all_to_all(std::span<const std::uint64_t> sends, int ranks, std::size_t width);

    /// Returns the blocks from `sources` to `destinations` that are not empty, ordered by source, then destination.
    [[nodiscard]] std::vector<Block> between(std::span<const int> sources, std::span<const int> destinations) const;
    /// Returns the maximum number of blocks that between() returns for so many ranks.
    [[nodiscard]] std::size_t max_between(std::size_t sources, std::size_t destinations) const;
    /// Return the maximum number of blocks of a source, and the bytes of the largest block of all.
    [[nodiscard]] std::size_t slots() const;
    [[nodiscard]] std::size_t largest() const;

private:
    enum class Pattern { kAllGather, kGather, kScatter, kAllToAll };

    BlockPlan(Pattern pattern, int ranks) : pattern_(pattern), ranks_(static_cast<std::size_t>(ranks)) {}
    void set_parts(std::vector<std::size_t> bytes);
    [[nodiscard]] std::size_t cell(int source, int destination) const {
        return static_cast<std::size_t>(source) * ranks_ + static_cast<std::size_t>(destination);
    }

    Pattern pattern_;
    std::size_t ranks_;
    int root_ = 0;
    // One entry per rank; for all-to-all one per source and destination, at cell().
    std::vector<std::size_t> bytes_;
    std::vector<std::size_t> from_;
    std::vector<std::size_t> to_;
};

}  // namespace ddp::detail
