#pragma once
// What the tests of the reducer's kernels copy, and the results of the host's functions.

#include <array>
#include <random>
#include <vector>

#include "tests/unit/worker_lib/support/reduction_cases.hpp"
#include "worker_lib/src/reducer/values.hpp"

namespace ddp::testing {

/// Returns `count` elements of a float type: hard values, ordinary ones, and any bits.
inline Bytes make_values(std::size_t count, DType type, unsigned seed) {
    Bytes bytes = repeat(make_input(count, type, static_cast<int>(seed)), count * size_of(type));
    put_hard_values(bytes, type, 4 + static_cast<int>(seed % 9));
    std::mt19937 random(seed);
    const std::size_t width = size_of(type);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        if (i / width % 3 == 1) bytes[i] = static_cast<std::byte>(random());
    }
    const auto& hard = hard_values(type);
    for (std::size_t i = 0; i < count; i += 3) write_float(&bytes[i * width], type, hard[i / 3 % hard.size()]);
    return bytes;
}

struct Conversion {
    DType from;
    DType to;
};
inline constexpr std::array<Conversion, 8> kConversions{{{DType::F64, DType::F64},
                                                         {DType::F32, DType::F32},
                                                         {DType::F16, DType::F16},
                                                         {DType::BF16, DType::BF16},
                                                         {DType::F32, DType::F16},
                                                         {DType::F32, DType::BF16},
                                                         {DType::F16, DType::F32},
                                                         {DType::BF16, DType::F32}}};

/// The same with the host's functions: the factor is applied in f32 where there is one side of it.
inline Bytes on_host(Bytes from, Conversion conversion, double factor) {
    const auto [type, to] = conversion;
    const Buffer source(from.data(), from.size() / size_of(type), type, Device::Cpu);
    if (type == to) {
        detail::scale(source, factor);
        return from;
    }
    Bytes result(source.count * size_of(to));
    const Buffer target(result.data(), source.count, to, Device::Cpu);
    if (type == DType::F32) {
        detail::scale(source, factor);
        detail::narrow(source, target);
    } else {
        detail::widen(source, target);
        detail::scale(target, factor);
    }
    return result;
}

}  // namespace ddp::testing
