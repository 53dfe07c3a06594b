#pragma once
// Float16 and BFloat16: elements of 16-bit floats, which C++20 lacks. Standard library only.

#include <bit>
#include <cstdint>
#include <limits>

#include "ddp/export.hpp"

namespace ddp::detail {

// Without branches, so that plain loops vectorise on any machine. Every reduction of 16-bit floats uses these
// conversions, or instructions that give the same bits.

/// Returns `when` if the condition holds, else `otherwise`. Uses masks, because compilers turn nested choices into
/// branches.
constexpr std::uint32_t choose(bool condition, std::uint32_t when, std::uint32_t otherwise) {
    const std::uint32_t mask = 0u - std::uint32_t{condition};
    return (when & mask) | (otherwise & ~mask);
}

constexpr float float_of_bf16(std::uint16_t value) { return std::bit_cast<float>(std::uint32_t{value} << 16); }

constexpr std::uint16_t bf16_of_float(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const std::uint32_t quiet_nan = (bits >> 16) | 0x40u;
    return static_cast<std::uint16_t>(choose((bits & 0x7fffffffu) > 0x7f800000u, quiet_nan, rounded));
}

constexpr float float_of_f16(std::uint16_t value) {
    const std::uint32_t magnitude = value & 0x7fffu;
    const std::uint32_t normal = (magnitude << 13) + (112u << 23);  // rebias the exponent
    // Subnormal: as the mantissa of a number from 2^-14 on, less 2^-14. No float here is subnormal, which a program may
    // have chosen to take for 0.
    const float above = std::bit_cast<float>((magnitude << 13) + (113u << 23));
    const auto subnormal = std::bit_cast<std::uint32_t>(above - 0x1p-14f);
    const std::uint32_t finite = choose(magnitude < 0x0400u, subnormal, normal);
    const std::uint32_t special = choose(magnitude >= 0x7c00u, 0x7f800000u, 0u);
    const std::uint32_t sign = std::uint32_t{value & 0x8000u} << 16;
    return std::bit_cast<float>(finite | special | sign);
}

constexpr std::uint16_t f16_of_float(float value) {
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
    return static_cast<std::uint16_t>(choose(magnitude >= kTooLarge, special, finite) | sign);
}

}  // namespace ddp::detail

namespace DDP_EXPORT ddp {

/// IEEE binary16 (f16). Arithmetic is that of float: a Float16 becomes one by itself, and is made from one by rounding
/// to nearest, ties to even: `sum = Float16(sum + value)`. Values from 65520 on become infinite. A NaN stays a NaN. In
/// a conditional expression the other operand needs to be a float, too: `c ? half : 0` is an int.
class Float16 {
public:
    Float16() = default;
    /// Rounds to nearest, ties to even.
    constexpr explicit Float16(float value) : bits_(detail::f16_of_float(value)) {}
    /// Returns the same value as a float.
    constexpr operator float() const { return detail::float_of_f16(bits_); }

    /// Returns the value with this representation.
    [[nodiscard]] static constexpr Float16 from_bits(std::uint16_t bits) { return std::bit_cast<Float16>(bits); }
    /// Returns the representation.
    [[nodiscard]] constexpr std::uint16_t bits() const { return bits_; }

private:
    std::uint16_t bits_;  // like a float, without a value until it is given one
};

/// The upper half of an IEEE binary32 (bf16), used as Float16 is.
class BFloat16 {
public:
    BFloat16() = default;
    /// Rounds to nearest, ties to even.
    constexpr explicit BFloat16(float value) : bits_(detail::bf16_of_float(value)) {}
    /// Returns the same value as a float.
    constexpr operator float() const { return detail::float_of_bf16(bits_); }

    /// Returns the value with this representation.
    [[nodiscard]] static constexpr BFloat16 from_bits(std::uint16_t bits) { return std::bit_cast<BFloat16>(bits); }
    /// Returns the representation.
    [[nodiscard]] constexpr std::uint16_t bits() const { return bits_; }

private:
    std::uint16_t bits_;  // like a float, without a value until it is given one
};

}  // namespace ddp

/// @cond  Doxygen does not know std

/// The limits of f16. Without them std::numeric_limits would have the values of no type, which are 0.
template <>
struct std::numeric_limits<ddp::Float16> : std::numeric_limits<float> {
    static constexpr int digits = 11, digits10 = 3, max_digits10 = 5;
    static constexpr int min_exponent = -13, min_exponent10 = -4, max_exponent = 16, max_exponent10 = 4;
    static constexpr bool is_iec559 = true;
    static constexpr ddp::Float16 min() noexcept { return ddp::Float16::from_bits(0x0400); }
    static constexpr ddp::Float16 max() noexcept { return ddp::Float16::from_bits(0x7bff); }
    static constexpr ddp::Float16 lowest() noexcept { return ddp::Float16::from_bits(0xfbff); }
    static constexpr ddp::Float16 epsilon() noexcept { return ddp::Float16::from_bits(0x1400); }
    static constexpr ddp::Float16 round_error() noexcept { return ddp::Float16::from_bits(0x3800); }
    static constexpr ddp::Float16 infinity() noexcept { return ddp::Float16::from_bits(0x7c00); }
    static constexpr ddp::Float16 quiet_NaN() noexcept { return ddp::Float16::from_bits(0x7e00); }
    static constexpr ddp::Float16 signaling_NaN() noexcept { return ddp::Float16::from_bits(0x7d00); }
    static constexpr ddp::Float16 denorm_min() noexcept { return ddp::Float16::from_bits(0x0001); }
};

/// The limits of bf16.
template <>
struct std::numeric_limits<ddp::BFloat16> : std::numeric_limits<float> {
    static constexpr int digits = 8, digits10 = 2, max_digits10 = 4;
    static constexpr ddp::BFloat16 min() noexcept { return ddp::BFloat16::from_bits(0x0080); }
    static constexpr ddp::BFloat16 max() noexcept { return ddp::BFloat16::from_bits(0x7f7f); }
    static constexpr ddp::BFloat16 lowest() noexcept { return ddp::BFloat16::from_bits(0xff7f); }
    static constexpr ddp::BFloat16 epsilon() noexcept { return ddp::BFloat16::from_bits(0x3c00); }
    static constexpr ddp::BFloat16 round_error() noexcept { return ddp::BFloat16::from_bits(0x3f00); }
    static constexpr ddp::BFloat16 infinity() noexcept { return ddp::BFloat16::from_bits(0x7f80); }
    static constexpr ddp::BFloat16 quiet_NaN() noexcept { return ddp::BFloat16::from_bits(0x7fc0); }
    static constexpr ddp::BFloat16 signaling_NaN() noexcept { return ddp::BFloat16::from_bits(0x7fa0); }
    static constexpr ddp::BFloat16 denorm_min() noexcept { return ddp::BFloat16::from_bits(0x0001); }
};

/// @endcond
