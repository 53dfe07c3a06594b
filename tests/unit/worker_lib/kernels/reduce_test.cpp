#include "worker_lib/src/kernels/reduce.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <limits>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/support/reduction_cases.hpp"
#include "worker_lib/src/util/partition.hpp"

using namespace ddp;
using detail::instruction_sets;
using detail::lookup;
using detail::part;
using detail::Range;
using detail::Reduction;

TEST_CASE("sums, products and averages of NaN and infinities follow IEEE 754, min and max keep a NaN",
          "[native][unit]") {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    const std::array<float, 5> a{kInfinity, kInfinity, kNan, 1, -0.0F};
    const std::array<float, 5> b{-kInfinity, 1, 1, kNan, 0.0F};
    const auto reduced = [&](ReduceOp op) {
        const std::array<const void*, 2> sources{a.data(), b.data()};
        std::array<float, 5> out{};
        lookup(DType::F32, op).reduce(sources.data(), 2, 5, out.data());
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
    lookup(DType::I32, ReduceOp::Sum).reduce(sources.data(), 4, 3000, values[in_place].data());
    CHECK(values[in_place] == std::vector<int>(3000, 15));
}

namespace {

/// Inputs of `count` elements in which every hard value of the type meets every other one.
std::vector<testing::Bytes> hard_inputs(int ranks, DType type, std::size_t count) {
    std::vector<testing::Bytes> inputs;
    for (int rank = 0; rank < ranks; ++rank) {
        inputs.push_back(testing::repeat(testing::make_input(count, type, rank), count * size_of(type)));
        testing::put_hard_values(inputs.back(), type, rank);
    }
    return inputs;
}

/// Returns the result of reduce_into() with two outputs, where one output is the second input.
testing::Bytes reduced_into(const Reduction& reduction, std::vector<testing::Bytes> inputs, const testing::Case& one,
                            std::size_t offset) {
    const double scale = one.op == ReduceOp::Avg ? 1.0 / static_cast<double>(inputs.size()) : 1.0;
    testing::Bytes elsewhere(inputs[1].size());
    std::vector<const void*> sources;
    for (auto& input : inputs) sources.push_back(input.data() + offset);
    const std::array<void*, 2> outputs{inputs[1].data() + offset, elsewhere.data() + offset};
    reduction.reduce_into(sources.data(), sources.size(), one.count, scale, outputs.data(), outputs.size());
    if (std::memcmp(elsewhere.data() + offset, inputs[1].data() + offset, one.count * size_of(one.type)) != 0)
        return {};
    return {elsewhere.begin() + static_cast<std::ptrdiff_t>(offset), elsewhere.end()};
}

/// reduce() and finish(), as between nodes.
testing::Bytes reduced_in_steps(const Reduction& reduction, const std::vector<testing::Bytes>& inputs,
                                const testing::Case& one) {
    const double scale = one.op == ReduceOp::Avg ? 1.0 / static_cast<double>(inputs.size()) : 1.0;
    std::vector<const void*> sources;
    for (const auto& input : inputs) sources.push_back(input.data());
    testing::Bytes sums(one.count * reduction.accumulator_bytes);
    testing::Bytes out(inputs[0].size());
    reduction.reduce(sources.data(), sources.size(), one.count, sums.data());
    reduction.finish(sums.data(), one.count, scale, out.data());
    return out;
}

/// Returns whether /proc/cpuinfo, which is not what the library reads, shows all of these.
bool has_cpu_flags(std::initializer_list<const char*> wanted) {
    std::ifstream file("/proc/cpuinfo");
    std::set<std::string> flags;
    for (std::string word, line; std::getline(file, line);) {
        if (!line.starts_with("flags")) continue;
        for (std::istringstream words(line); words >> word;) flags.insert(word);
        break;
    }
    return std::ranges::all_of(wanted, [&](const char* flag) { return flags.contains(flag); });
}

}  // namespace

TEST_CASE("every instruction set gives the same bits as plain arithmetic", "[native][unit]") {
    const int ranks = GENERATE(2, 3);  // two have a loop of their own
    CAPTURE(ranks);
    std::string wrong;
    std::set<const Reduction*> tables;
    const auto sets = instruction_sets();
    for (const auto& [name, lookup_in_set] : sets) {
        tables.insert(&lookup_in_set(DType::F32, ReduceOp::Sum));
        for (const testing::Case& one : testing::all_types_and_ops({1, 63, 5003})) {
            auto inputs = hard_inputs(ranks, one.type, one.count);
            const Reduction& reduction = lookup_in_set(one.type, one.op);
            const auto right = testing::reference_all_reduce(inputs, {ranks}, one.type, one.op);
            const auto complain = [&, name = name](const char* what, const testing::Bytes& got) {
                const auto where = testing::first_difference(got, right, one.type);
                if (where >= 0) wrong += fmt::format(" {} {} {} at {};", name, what, one.text(), where);
            };
            complain("in one", reduced_into(reduction, inputs, one, 0));
            complain("in steps", reduced_in_steps(reduction, inputs, one));
            for (auto& input : inputs) input.insert(input.begin(), size_of(one.type), std::byte{});
            complain("unaligned", reduced_into(reduction, inputs, one, size_of(one.type)));
        }
    }
    CHECK(wrong == "");
    CHECK(std::ssize(tables) == std::ssize(sets));
    CHECK(&lookup(DType::F32, ReduceOp::Sum) == &sets.front().lookup(DType::F32, ReduceOp::Sum));
    const auto has = [&](std::string_view name) {
        return std::ranges::any_of(sets, [&](const auto& set) { return set.name == name; });
    };
    CHECK(has("AVX2") == has_cpu_flags({"avx2", "fma", "f16c", "bmi1", "bmi2"}));
    CHECK(has("AVX3") == (has("AVX2") && has_cpu_flags({"avx512f", "avx512vl", "avx512dq", "avx512bw", "avx512cd"})));
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
