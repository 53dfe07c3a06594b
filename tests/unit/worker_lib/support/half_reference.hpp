#pragma once
// The slow and obvious conversions of f16 and bf16, with which the fast ones are compared.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace ddp::testing {

/// Returns the value of a float format with a sign bit, `exponent_bits` and `mantissa_bits`.
inline double decode(std::uint16_t bits, int exponent_bits, int mantissa_bits) {
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
    const int mantissa = bits & ((1 << mantissa_bits) - 1);
    const double sign = (bits & 0x8000) != 0 ? -1 : 1;
    if (exponent == (1 << exponent_bits) - 1) {
        return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                             : sign * std::numeric_limits<double>::infinity();
    }
    if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
    return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

inline double decode_f16(std::uint16_t bits) { return decode(bits, 5, 10); }
inline double decode_bf16(std::uint16_t bits) { return decode(bits, 8, 7); }

/// Returns the bits of the nearest value, ties to the even one; found among the neighbours in the list of all positive
/// values.
inline std::uint16_t encode(double value, int exponent_bits, int mantissa_bits) {
    const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
    const double magnitude = std::fabs(value);
    const auto infinity = static_cast<std::uint16_t>(((1 << exponent_bits) - 1) << mantissa_bits);
    if (std::isnan(value)) return static_cast<std::uint16_t>(sign | infinity | (1 << (mantissa_bits - 1)));
    std::uint16_t low = 0;
    std::uint16_t high = infinity;  // rounding treats it as the value that would follow the largest finite one
    const double beyond =
        2 * decode(static_cast<std::uint16_t>(infinity - (1 << mantissa_bits)), exponent_bits, mantissa_bits);
    const auto at = [&](std::uint16_t bits) {
        return bits == infinity ? beyond : decode(bits, exponent_bits, mantissa_bits);
    };
    while (high - low > 1) {
        const auto middle = static_cast<std::uint16_t>((low + high) / 2);
        (at(middle) <= magnitude ? low : high) = middle;
    }
    const double below = magnitude - at(low);
    const double above = at(high) - magnitude;
    const bool up = std::isinf(magnitude) || above < below || (above == below && (high & 1) == 0);
    return static_cast<std::uint16_t>(sign | (up ? high : low));
}

inline std::uint16_t encode_f16(double value) { return encode(value, 5, 10); }
inline std::uint16_t encode_bf16(double value) { return encode(value, 8, 7); }

}  // namespace ddp::testing
