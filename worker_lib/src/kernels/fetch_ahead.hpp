#pragma once
// Software prefetching for work on long memory that lies in no cache: each block is prefetched while the one before it
// is processed. The processor's own prefetcher stops at the end of a page, and most programs have small pages. For
// reductions only; copies of the C library become slower.

#include <algorithm>
#include <cstddef>

namespace ddp::detail {

inline constexpr std::size_t kFetchBytes = 4096;

/// Prefetches `bytes` from `from` on.
inline void fetch(const std::byte* from, std::size_t bytes) {
    constexpr std::size_t kLine = 64;
    for (std::size_t at = 0; at < bytes; at += kLine) __builtin_prefetch(from + at);
}

/// Calls work(at, size) for all blocks of `bytes` from `memory` on. All but the last have kFetchBytes.
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
