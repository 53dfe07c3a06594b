#include "worker_lib/src/native/reduce.hpp"

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/catch.hpp"
#include "worker_lib/src/native/partition.hpp"

using namespace ddp;
using detail::lookup;
using detail::part;
using detail::Range;

TEST_CASE("sums, products and averages of NaN and infinities follow IEEE 754; min and max keep a NaN",
          "[native][unit]") {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    const std::array<float, 5> a{kInfinity, kInfinity, kNan, 1, -0.0F};
    const std::array<float, 5> b{-kInfinity, 1, 1, kNan, 0.0F};
    const auto reduced = [&](ReduceOp op) {
        const std::array<const void*, 2> sources{a.data(), b.data()};
        std::array<float, 5> out{};
        lookup(DType::f32, op).reduce(sources.data(), 2, 5, out.data());
        return out;
    };
    const auto sum = reduced(ReduceOp::Sum);
    CHECK(std::isnan(sum[0]));
    CHECK(sum[1] == kInfinity);
    CHECK(std::isnan(sum[2]));
    CHECK(std::isnan(sum[3]));
    const auto low = reduced(ReduceOp::Min);
    CHECK(low[0] == -kInfinity);
    CHECK(low[1] == 1);
    CHECK(std::isnan(low[2]));
    CHECK(std::isnan(low[3]));
    const auto high = reduced(ReduceOp::Max);
    CHECK(high[0] == kInfinity);
    CHECK(std::isnan(high[2]));
    CHECK(std::isnan(high[3]));
}

TEST_CASE("the output of a reduction may be any of its sources", "[native][unit]") {
    const std::size_t in_place = GENERATE(0, 1, 2, 3);
    std::vector<std::vector<int>> values(4, std::vector<int>(3000));
    for (std::size_t s = 0; s < 4; ++s) std::fill(values[s].begin(), values[s].end(), 1 << s);
    const std::array<const void*, 4> sources{values[0].data(), values[1].data(), values[2].data(), values[3].data()};
    lookup(DType::i32, ReduceOp::Sum).reduce(sources.data(), 4, 3000, values[in_place].data());
    CHECK(values[in_place] == std::vector<int>(3000, 15));
}

TEST_CASE("parts cover everything once and begin at multiples of the grain", "[native][unit]") {
    const std::size_t parts = GENERATE(1, 2, 3, 4, 7, 8, 64);
    const std::size_t grain = GENERATE(1, 32, 128);
    for (const std::size_t count : {0, 1, 2, 31, 32, 33, 127, 128, 1000, 4096, 100001}) {
        CAPTURE(parts, grain, count);
        std::size_t next = 0;
        bool aligned = true;
        for (std::size_t i = 0; i < parts; ++i) {
            const Range range = part(count, parts, i, grain);
            CHECK(range.begin == next);
            aligned = aligned && (range.begin % grain == 0 || range.empty());
            next = range.end;
        }
        CHECK(next == count);
        CHECK(aligned);
    }
}
