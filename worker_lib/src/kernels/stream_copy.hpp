#pragma once
// stream_copy: copies data that another core will read with non-temporal stores, past the caches. Between cores that
// share no cache, fetching lines one by one from the writer's cache is slower than reading memory. Between cores that
// share one, this copy is slower. StagingChoice measures which way is faster.

#include <cstddef>
#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace ddp::detail {

/// Copies `bytes` bytes. A later release store of this thread publishes them, as after memcpy().
inline void stream_copy(std::byte* to, const std::byte* from, std::size_t bytes) {
#ifdef __SSE2__
    constexpr std::size_t kLine = 64;
    const std::size_t head = (kLine - reinterpret_cast<std::uintptr_t>(to) % kLine) % kLine;
    if (bytes < head + kLine) {
        std::memcpy(to, from, bytes);  // needs no fence: nothing went past the caches
        return;
    }
    std::memcpy(to, from, head);
    std::size_t at = head;
    for (; at + kLine <= bytes; at += kLine) {
        for (std::size_t part = at; part < at + kLine; part += sizeof(__m128i)) {
            __m128i value;
            std::memcpy(&value, from + part, sizeof value);
            _mm_stream_si128(reinterpret_cast<__m128i*>(to + part), value);
        }
    }
    std::memcpy(to + at, from + at, bytes - at);
    _mm_sfence();
#else
    std::memcpy(to, from, bytes);
#endif
}

}  // namespace ddp::detail
