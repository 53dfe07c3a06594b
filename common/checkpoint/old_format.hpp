#pragma once
// The format of checkpoints before version 3, which is read only: a head of text, padding and tensors. Pure. The format
// is described in old_format.cpp.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "common/checkpoint/checksums.hpp"
#include "common/checkpoint/safetensors.hpp"

namespace ddprun::checkpoint {

inline constexpr std::size_t kPreambleBytes = 64;           ///< of the first line, which holds the length of the head
inline constexpr std::size_t kMaxOldHeadBytes = 64u << 20;  ///< a larger length in a file is damage

struct OldHead {
    int version = 2;
    std::uint64_t step = 0;
    std::uint64_t world_size = 0;
    std::size_t file_bytes = 0;   ///< of a complete file
    std::vector<Tensor> tensors;  ///< begin is counted from the start of the file
    std::vector<Chunk> chunks;    ///< one for each tensor
};

/// Returns the length of the whole head, given the first kPreambleBytes of a file; nothing if the file has another
/// format.
[[nodiscard]] std::optional<std::size_t> old_head_bytes(std::string_view preamble);

/// Returns what a whole head says; nothing if the head is damaged.
[[nodiscard]] std::optional<OldHead> decode_old(std::string_view head);

}  // namespace ddprun::checkpoint
