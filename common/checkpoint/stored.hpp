#pragma once
// StoredCheckpoint: a checkpoint file that is open for reading, of any version of the format, or any safetensors file.
// Used by ddp::Checkpointer and by ddpctl. One thread at a time.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <vector>

#include "common/checkpoint/checksums.hpp"
#include "common/checkpoint/safetensors.hpp"
#include "common/error.hpp"
#include "common/system/unique_fd.hpp"

namespace ddprun::checkpoint {

struct StoredCheckpoint {
    UniqueFd fd;
    int version = 0;  ///< 0: a safetensors file of another program, without checksums
    SaveFacts facts;
    std::vector<Tensor> tensors;  ///< begin is counted from the start of the file
    std::vector<Chunk> chunks;    ///< in the order of their bytes; begin as in tensors
    std::uint64_t head_hash = 0;  ///< of all before the data: files of a Checkpointer that differ have different ones
};

/// Opens a file and reads its header. The error of a damaged file has Errc::kMalformed and the text "its head is
/// damaged"; that of a newer version has Errc::kMismatch; one of the system has its errno. No error names the file, so
/// the caller adds that.
[[nodiscard]] Result<StoredCheckpoint> open_checkpoint(const std::filesystem::path& path);

using UseBytes = std::function<void(std::size_t begin, std::span<const std::byte> bytes)>;

/// Reads a chunk and compares its checksum. Calls `use` with its bytes, which may be damaged until it returns.
/// scratch   memory for a piece of it; kBlockBytes are enough for a whole one of version 3
[[nodiscard]] Result<void> read_chunk(const StoredCheckpoint& file, const Chunk& chunk, std::span<std::byte> scratch,
                                      const UseBytes& use);

/// Reads all chunks. Returns the first error.
[[nodiscard]] Result<void> verify(const StoredCheckpoint& file);

}  // namespace ddprun::checkpoint
