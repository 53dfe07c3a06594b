#pragma once
// BlockPlan: which bytes of whose input become which bytes of whose output, for the collectives that only move data.
// Every rank computes the same plan, so that no message needs to say what is in it. Pure.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "worker_lib/src/backend.hpp"

namespace ddp::detail {

/// Bytes [from, from + bytes) of the source's input, which become [to, to + bytes) of the destination's output.
struct Block {
    static constexpr int kEverybody = -1;
    int source = 0;
    int destination = 0;   ///< or kEverybody
    std::size_t slot = 0;  ///< its number among the blocks of its source
    std::size_t from = 0;
    std::size_t to = 0;
    std::size_t bytes = 0;
};

class BlockPlan {
public:
    /// Of an operation of any moving kind but kAllToAllV, in a group of `ranks`.
    BlockPlan(const Operation& operation, int ranks);
    /// Every rank gives `bytes` bytes to everybody.
    [[nodiscard]] static BlockPlan all_gather(std::size_t bytes, int ranks);
    /// Rank i gives rank j `sends[i * ranks + j]` elements of `width` bytes.
    [[nodiscard]] static BlockPlan all_to_all(std::span<const std::uint64_t> sends, int ranks, std::size_t width);

    /// What `sources` give to `destinations`, without empty blocks, ordered by source, then destination.
    [[nodiscard]] std::vector<Block> between(std::span<const int> sources, std::span<const int> destinations) const;
    /// How many blocks between() so many ranks can give.
    [[nodiscard]] std::size_t most_between(std::size_t sources, std::size_t destinations) const;
    /// How many blocks a source can have, and the bytes of the largest block of all.
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
    // One entry per rank, whose part lies at the offset in the whole; for all-to-all one per source and destination.
    std::vector<std::size_t> bytes_;
    std::vector<std::size_t> from_;
    std::vector<std::size_t> to_;
};

}  // namespace ddp::detail
