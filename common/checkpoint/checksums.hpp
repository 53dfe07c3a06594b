#pragma once
// The checksums and facts that ddp::Checkpointer adds to the header of a safetensors file, in "__metadata__". Pure.
// ddp.hashes has the WordHash64 of each Chunk, 16 hexadecimal digits each, and ddp.header_hash that of the header with
// zeros in its place, so that the length of a header does not depend on the hashes.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/checkpoint/safetensors.hpp"

namespace ddprun::checkpoint {

inline constexpr std::size_t kBlockBytes = 1u << 20;
/// The version of the format. Versions 1 and 2 are the format of old_format.hpp.
inline constexpr int kVersion = 3;

/// The bytes of one tensor in one block of the data. Each chunk has one checksum.
struct Chunk {
    std::size_t tensor = 0;  ///< index
    std::size_t begin = 0;   ///< of its bytes
    std::size_t bytes = 0;
    std::uint64_t hash = 0;
    [[nodiscard]] std::size_t end() const { return begin + bytes; }
    bool operator==(const Chunk&) const = default;
};

/// The save that has written a file.
struct SaveFacts {
    std::uint64_t step = 0;
    std::uint64_t world_size = 0;  ///< for information
    std::int64_t generation = 0;   ///< for information
    bool operator==(const SaveFacts&) const = default;
};

/// Returns the chunks of tensors that lie end to end, in the order of their bytes, without hashes.
[[nodiscard]] std::vector<Chunk> chunks_of(std::span<const Tensor> tensors);

/// Returns the beginning of a checkpoint, up to its data. Its length is the same for all hashes.
/// hashes   of the chunks; fewer: the others are 0
[[nodiscard]] std::string encode_checkpoint(const SaveFacts& facts, std::span<const Tensor> tensors,
                                            std::span<const std::uint64_t> hashes);

/// Returns whether a file was written by a Checkpointer.
[[nodiscard]] bool has_checksums(const Header& header);

struct Checksums {
    SaveFacts facts;
    std::vector<Chunk> chunks;
};
/// Returns the checksums in the beginning of a file, and checks that of the header. Errors: kMalformed for damage,
/// kMismatch for a version of the format that is not known.
/// first_bytes   up to the data
[[nodiscard]] Result<Checksums> checksums_of(const Header& header, std::string_view first_bytes);

}  // namespace ddprun::checkpoint
