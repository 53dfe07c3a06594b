#pragma once
// What users of libraries that know neither f16 nor bf16 have to write: the sum of two buffers of them. Each step of a
// collective rounds its sum, as any function of two buffers must. Compiled for the machine it runs on.

#include <cstddef>
#include <cstdint>
#ifdef __F16C__
#include <immintrin.h>
#endif

#include "ddp/float16.hpp"

namespace ddprun::bench {

/// out[i] = a[i] + b[i]; out may be one of them.
inline void add_f16(std::uint16_t* out, const std::uint16_t* a, const std::uint16_t* b, std::size_t count) {
    std::size_t i = 0;
#ifdef __F16C__
    const auto wide = [](const std::uint16_t* from) {
        return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    };
    for (; i + 8 <= count; i += 8) {
        const __m256 sum = _mm256_add_ps(wide(a + i), wide(b + i));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), _mm256_cvtps_ph(sum, _MM_FROUND_TO_NEAREST_INT));
    }
#endif
    using ddp::Float16;
    for (; i < count; ++i) out[i] = Float16(Float16::from_bits(a[i]) + Float16::from_bits(b[i])).bits();
}

inline void add_bf16(std::uint16_t* out, const std::uint16_t* a, const std::uint16_t* b, std::size_t count) {
    using ddp::BFloat16;
    for (std::size_t i = 0; i < count; ++i)
        out[i] = BFloat16(BFloat16::from_bits(a[i]) + BFloat16::from_bits(b[i])).bits();
}

}  // namespace ddprun::bench
