#pragma once
// WritePlan: which rank writes which bytes of a checkpoint, and which bytes it needs from others for that. Pure; all
// ranks compute it from the same table.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/checkpoint/checksums.hpp"
#include "ddp/checkpoint_state.hpp"

namespace ddp::detail {

/// Bytes of a tensor, counted from its beginning, that a rank has.
struct OwnedRange {
    static constexpr int kEveryRank = -1;
    std::uint64_t tensor = 0;  ///< index in the state
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    int rank = kEveryRank;
};

/// Bytes of the data that lie together in the memory of one rank as well.
struct Run {
    static constexpr std::size_t kReceived = static_cast<std::size_t>(-1);
    std::size_t position = 0;  ///< of the first byte in the data
    std::size_t bytes = 0;
    std::size_t tensor = 0;  ///< index in the state of the tensor whose memory has them; kReceived: received ones
    std::size_t offset = 0;  ///< in the tensor, counted from its beginning, or in the received bytes
    bool operator==(const Run&) const = default;
};

struct WritePlan {
    std::vector<int> writers;                ///< by block: the rank that writes and hashes it
    std::vector<Run> writes;                 ///< of this rank, in the order of the data: whole blocks
    std::vector<Run> sends;                  ///< of this rank, by receiver and then in the order of the data
    std::vector<std::size_t> send_bytes;     ///< of this rank, by receiver
    std::vector<std::size_t> receive_bytes;  ///< of this rank, by sender
    bool exchanges = false;                  ///< some rank sends bytes
};

/// A block is written by the rank that has its first byte. If several have it, the blocks are dealt to them in order.
/// A rank that cannot write leaves its blocks to the others that have them. Blocks of which none of these can write are
/// dealt to all ranks that can.
/// tensors     as in the file, in the order of their bytes
/// in_state    the index in the state of each of them
/// ranges      of all ranks, in any order; those of different ranks may overlap. They cover every tensor
/// can_write   by rank; at least one can
[[nodiscard]] WritePlan plan_writes(std::span<const ddprun::checkpoint::Tensor> tensors,
                                    std::span<const std::size_t> in_state, std::span<const OwnedRange> ranges, int rank,
                                    const std::vector<bool>& can_write);

/// Returns the first bytes that no rank has: "elements 5 to 9 of 'a'"; empty: there are none.
[[nodiscard]] std::string uncovered(std::span<const NamedShard> state, std::span<const OwnedRange> ranges);

}  // namespace ddp::detail
