#pragma once
// Half, Bfloat16: f16 and bf16 as bits, converted without branches, so that plain loops over them vectorise on any
// machine. Conversion rounds to nearest, ties to even. Infinities and subnormals are exact. A NaN stays a NaN. Every
// reduction of 16-bit types uses these conversions: the sums are in reduce_loops-inl.hpp, and in
// reduce_vectors-inl.hpp, which repeats the rounding for vectors. Pure.

#include <bit>
#include <cstdint>

namespace ddp::detail {

/// IEEE binary16.
struct Half {
    std::uint16_t bits;
};

/// The upper half of an IEEE binary32.
struct Bfloat16 {
    std::uint16_t bits;
};

/// Returns `when` if the condition holds, else `otherwise`. Uses masks, because compilers turn nested choices into
/// branches.
inline std::uint32_t choose(bool condition, std::uint32_t when, std::uint32_t otherwise) {
    const std::uint32_t mask = 0u - std::uint32_t{condition};
    return (when & mask) | (otherwise & ~mask);
}

inline float to_float(Bfloat16 value) { return std::bit_cast<float>(std::uint32_t{value.bits} << 16); }

inline Bfloat16 to_bfloat16(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const std::uint32_t quiet_nan = (bits >> 16) | 0x40u;
    return {static_cast<std::uint16_t>(choose((bits & 0x7fffffffu) > 0x7f800000u, quiet_nan, rounded))};
}

inline float to_float(Half value) {
    // The exponent and mantissa moved into place are the value times 2^-112, subnormals included; multiplying is exact.
    const std::uint32_t magnitude = value.bits & 0x7fffu;
    const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
    const std::uint32_t special = choose(magnitude >= 0x7c00u, 0x7f800000u, 0u);
    const std::uint32_t sign = std::uint32_t{value.bits & 0x8000u} << 16;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | special | sign);
}

inline Half to_half(float value) {
    constexpr std::uint32_t kTooLarge = 0x47800000u;  // 65536; from 65520 on rounding reaches infinity by itself
    constexpr std::uint32_t kSmallestNormal = 0x38800000u;
    constexpr float kAlign = 0.5f;  // its last mantissa bit is worth as much as a subnormal's
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (bits >> 16) & 0x8000u;
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    // Normal: rebias the exponent by 112 and round at bit 13.
    const std::uint32_t normal = (magnitude - (112u << 23) + 0x0fffu + ((magnitude >> 13) & 1u)) >> 13;
    // Subnormal: the addition rounds at the right place, and the part above kAlign is the result.
    const float aligned = std::bit_cast<float>(magnitude) + kAlign;
    const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(aligned) - std::bit_cast<std::uint32_t>(kAlign);
    const std::uint32_t special = choose(magnitude > 0x7f800000u, 0x7e00u, 0x7c00u);
    const std::uint32_t finite = choose(magnitude < kSmallestNormal, subnormal, normal);
    return {static_cast<std::uint16_t>(choose(magnitude >= kTooLarge, special, finite) | sign)};
}

}  // namespace ddp::detail
