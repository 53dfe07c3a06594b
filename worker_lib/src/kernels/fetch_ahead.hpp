#pragma once
// Work on long memory that lies in no cache, block by block, where each block is asked for while the one before is
// worked on. The processor asks ahead by itself, but only within a page, and small pages are what programs mostly have.
// For reductions; copies of the C library lose by it.

#include <algorithm>
#include <cstddef>

namespace ddp::detail {

inline constexpr std::size_t kFetchBytes = 4096;  ///< larger blocks and smaller ones were slower

/// A wish.
inline void fetch(const std::byte* from, std::size_t bytes) {
    constexpr std::size_t kLine = 64;
    for (std::size_t at = 0; at < bytes; at += kLine) __builtin_prefetch(from + at);
}

/// work(at, size) for all blocks of `bytes` from `memory` on. All but the last have kFetchBytes.
template <typename Work>
void fetching_ahead(const std::byte* memory, std::size_t bytes, Work work) {
    fetch(memory, std::min(bytes, kFetchBytes));
    for (std::size_t at = 0; at < bytes; at += kFetchBytes) {
        const std::size_t size = std::min(kFetchBytes, bytes - at);
        fetch(memory + at + size, std::min(bytes - at - size, kFetchBytes));
        work(at, size);
    }
}

}  // namespace ddp::detail
