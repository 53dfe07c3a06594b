#pragma once
// The arguments of the kernels in gradients.cu, which that file shares with their launcher
// (worker_lib/src/cuda/kernels.hpp). A launch gets a table of chunks by value, so that it needs no copy of a table to
// the device. Both sides divide the chunks into tiles, and every block of threads processes one tile.

#include <cstdint>

namespace ddp::detail {

/// `count` elements that go from `from` to `to`, in device memory. Between equal types both may be the same memory;
/// they overlap in no other way.
struct CopyChunk {
    void* to;
    const void* from;
    std::uint64_t count;
};

/// `count` elements of a gradient, of what is sent in its place, and of the rounding errors of earlier steps.
struct FeedbackChunk {
    float* gradient;
    void* wire;  ///< f16 or bf16
    float* residual;
    std::uint64_t count;
};

inline constexpr unsigned kBlockThreads = 256;
inline constexpr unsigned kTileBytes = 16384;  ///< of the wider type: four accesses of 16 bytes for every thread

/// Returns the elements of a tile; a chunk's last tile may have fewer.
constexpr unsigned tile_elements(unsigned from_bytes, unsigned to_bytes) {
    return kTileBytes / (from_bytes > to_bytes ? from_bytes : to_bytes);
}

/// The chunks of one launch. Before CUDA 12.1 the arguments of a kernel may have 4 KiB.
template <typename Chunk>
struct ChunkTable {
    static constexpr unsigned kMaxChunks = (4096 - 16) / (sizeof(Chunk) + sizeof(std::uint32_t));

    double factor;
    std::uint32_t count;                   ///< of chunks
    std::uint32_t first_tile[kMaxChunks];  ///< of each chunk; a launch has one block for each tile
    Chunk chunks[kMaxChunks];
};
static_assert(sizeof(ChunkTable<CopyChunk>) <= 4096 && sizeof(ChunkTable<FeedbackChunk>) <= 4096);

}  // namespace ddp::detail
