#include "ddp/float16.hpp"

#ifdef __SSE2__
#include <immintrin.h>
#endif

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/support/half_reference.hpp"

using ddp::BFloat16;
using ddp::Float16;
namespace reference = ddp::testing;

namespace {

/// Floats where rounding is hard: random ones, halfway points between neighbours, and both sides of these.
template <typename Check>
void for_hard_floats(int mantissa_bits, int exponent_bits, Check check) {
    std::mt19937 random(1);
    for (int i = 0; i < 20'000; ++i) check(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
    const auto infinity = static_cast<std::uint16_t>(((1 << exponent_bits) - 1) << mantissa_bits);
    for (int bits = 0; bits < infinity; bits += 1 + static_cast<int>(random() % 3)) {
        const double low = reference::decode(static_cast<std::uint16_t>(bits), exponent_bits, mantissa_bits);
        const double unit = bits >> mantissa_bits == 0 ? reference::decode(1, exponent_bits, mantissa_bits)
                                                       : std::ldexp(1.0, std::ilogb(low) - mantissa_bits);
        const auto middle = static_cast<float>(low + unit / 2);
        for (const float value :
             {static_cast<float>(low), middle, std::nextafterf(middle, 0), std::nextafterf(middle, HUGE_VALF)}) {
            check(value);
            check(-value);
        }
    }
    for (const float value : {HUGE_VALF, -HUGE_VALF, 65519.996F, 65520.0F, 65536.0F, 3.4e38F, 3.3961776e38F, 1e-45F})
        check(value);
}

}  // namespace

TEST_CASE("every f16 and bf16 becomes the right float", "[native][unit]") {
    std::string wrong;
    for (int bits = 0; bits <= 0xffff; ++bits) {
        const auto word = static_cast<std::uint16_t>(bits);
        const double f16 = reference::decode_f16(word);
        const double bf16 = reference::decode_bf16(word);
        const float got16 = Float16::from_bits(word);
        const float got_b16 = BFloat16::from_bits(word);
        if (std::isnan(f16) ? !std::isnan(got16) : got16 != f16) wrong += " f16:" + std::to_string(bits);
        if (std::isnan(bf16) ? !std::isnan(got_b16) : got_b16 != bf16) wrong += " bf16:" + std::to_string(bits);
    }
    CHECK(wrong == "");
}

TEST_CASE("floats are rounded to the nearest f16, ties to even", "[native][unit]") {
    std::string wrong;
    for_hard_floats(10, 5, [&](float value) {
        const auto got = Float16(value).bits();
        if (std::isnan(value) ? !std::isnan(reference::decode_f16(got)) : got != reference::encode_f16(value)) {
            wrong += " " + std::to_string(value);
        }
    });
    CHECK(wrong == "");
}

TEST_CASE("floats are rounded to the nearest bf16, ties to even", "[native][unit]") {
    std::string wrong;
    for_hard_floats(7, 8, [&](float value) {
        const auto got = BFloat16(value).bits();
        if (std::isnan(value) ? !std::isnan(reference::decode_bf16(got)) : got != reference::encode_bf16(value)) {
            wrong += " " + std::to_string(value);
        }
    });
    CHECK(wrong == "");
}

#ifdef __SSE2__
namespace {

/// During its lifetime this thread takes subnormal floats for 0, as a program linked with -ffast-math does.
class SubnormalsAsZero {
public:
    SubnormalsAsZero() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040U); }  // DAZ, FTZ
    ~SubnormalsAsZero() { _mm_setcsr(before_); }
    SubnormalsAsZero(const SubnormalsAsZero&) = delete;
    SubnormalsAsZero& operator=(const SubnormalsAsZero&) = delete;

private:
    const unsigned int before_;
};

}  // namespace

TEST_CASE("subnormal f16 keep their values where a program takes subnormal floats for 0", "[native][unit]") {
    std::string wrong;
    const SubnormalsAsZero mode;
    for (std::uint16_t bits = 0; bits < 0x0400; ++bits) {
        const auto value = Float16::from_bits(bits);
        if (float{value} != reference::decode_f16(bits) || Float16(float{value}).bits() != bits)
            wrong += " " + std::to_string(bits);
    }
    CHECK(wrong == "");
}
#endif

TEST_CASE("the limits of 16-bit floats are those of their types", "[native][unit]") {
    using Half = std::numeric_limits<Float16>;
    using Brain = std::numeric_limits<BFloat16>;
    CHECK(float{Half::max()} == 65504.0F);
    CHECK(float{Half::lowest()} == -65504.0F);
    CHECK(float{Half::min()} == 0x1p-14F);
    CHECK(float{Half::denorm_min()} == 0x1p-24F);
    CHECK(float{Half::epsilon()} == 0x1p-10F);
    CHECK(float{Half::round_error()} == 0.5F);
    CHECK(std::isinf(float{Half::infinity()}));
    CHECK(std::isnan(float{Half::quiet_NaN()}));
    CHECK(float{Brain::max()} == 0x1.fep127F);
    CHECK(float{Brain::min()} == 0x1p-126F);
    CHECK(float{Brain::epsilon()} == 0x1p-7F);
    CHECK(std::isinf(float{Brain::infinity()}));
    CHECK(std::isnan(float{Brain::quiet_NaN()}));
}
