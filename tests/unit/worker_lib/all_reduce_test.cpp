// All-reduce against the slow reference, bit for bit: worlds of all shapes, all types and reductions, small and odd
// counts, buffers inside and outside the arena. That every rank equals the reference says also that all ranks and all
// runs agree.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/local_world.hpp"
#include "tests/unit/worker_lib/reduction_reference.hpp"

using namespace ddp;
using namespace ddp::testing;

namespace {

enum class Memory { kArena, kForeign, kMixed };

/// Long inputs repeat after so many elements, a prime, so that the slow reference is computed for one period only and
/// an element that ends up in another's place is still seen.
constexpr std::size_t kPeriod = 4099;

Bytes repeat(const Bytes& period, std::size_t bytes) {
    Bytes all;
    all.reserve(bytes + period.size());
    while (all.size() < bytes) all.insert(all.end(), period.begin(), period.end());
    all.resize(bytes);
    return all;
}

/// The first period of a rank's input: pseudo-random, between -4 and 4 for floats, any bits for integers.
Bytes make_input(std::size_t count, DType type, int rank) {
    Bytes bytes(std::min(count, kPeriod) * size_of(type));
    std::uint64_t state = 0x9e3779b97f4a7c15ULL * static_cast<std::uint64_t>(rank + 1);
    for (std::size_t i = 0; i < bytes.size(); i += size_of(type)) {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        const std::uint64_t random = state >> 8;
        if (is_float(type)) {
            write_float(&bytes[i], type, static_cast<double>(random % 2001) / 250.0 - 3.999);
        } else {
            std::memcpy(&bytes[i], &random, size_of(type));
        }
    }
    return bytes;
}

struct Case {
    DType type;
    ReduceOp op;
    std::size_t count;
    std::string text() const { return fmt::format("{} {}[{}]", to_string(op), to_string(type), count); }
};

std::vector<Case> all_types_and_ops(const std::vector<std::size_t>& counts) {
    std::vector<Case> cases;
    for (int type = 0; type <= static_cast<int>(DType::f64); ++type) {
        for (int op = 0; op <= static_cast<int>(ReduceOp::BXor); ++op) {
            const auto dtype = static_cast<DType>(type);
            const auto reduce_op = static_cast<ReduceOp>(op);
            if (is_float(dtype) ? reduce_op >= ReduceOp::BAnd : reduce_op == ReduceOp::Avg) continue;
            for (const std::size_t count : counts) cases.push_back({dtype, reduce_op, count});
        }
    }
    return cases;
}

/// Runs all cases in one world, each rank at its own pace; what was wrong on any rank, or nothing.
std::string run_cases(const LocalWorld& world, const std::vector<Case>& cases, Memory memory) {
    std::vector<std::vector<Bytes>> inputs;  // by case and rank
    std::vector<Bytes> expected;
    for (const Case& one : cases) {
        auto& of_case = inputs.emplace_back();
        for (int rank = 0; rank < world.size(); ++rank) of_case.push_back(make_input(one.count, one.type, rank));
        expected.push_back(reference_all_reduce(of_case, world.ranks_per_node, one.type, one.op));
    }
    const auto complaints = run_ranks(world, [&](Context& context) -> std::string {
        const bool arena = memory == Memory::kArena || (memory == Memory::kMixed && context.rank() % 2 == 0);
        for (std::size_t i = 0; i < cases.size(); ++i) {
            const Case& one = cases[i];
            const std::size_t bytes = one.count * size_of(one.type);
            Bytes own = repeat(inputs[i][static_cast<std::size_t>(context.rank())], bytes);
            std::byte* data = own.data();
            if (arena) {
                data = static_cast<std::byte*>(context.world().arena().allocate(own.size()));
                std::copy(own.begin(), own.end(), data);
            }
            context.world().all_reduce({data, one.count, one.type}, one.op).wait();
            const auto where = first_difference(Bytes(data, data + bytes), repeat(expected[i], bytes), one.type);
            if (where >= 0) return fmt::format("rank {}: {} differs at element {}", context.rank(), one.text(), where);
        }
        return {};
    });
    std::string all;
    for (const auto& complaint : complaints) all += complaint;
    return all;
}

std::string name_of(const std::vector<int>& shape) { return fmt::format("{}", fmt::join(shape, "+")); }

}  // namespace

TEST_CASE("all types, reductions and awkward counts, in worlds of all shapes", "[native][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{1}, {2}, {3}, {4}, {8}, {1, 1}, {2, 2}, {3, 1}, {1, 3, 2}}));
    const auto memory = GENERATE(Memory::kArena, Memory::kForeign, Memory::kMixed);
    const LocalWorld world{.ranks_per_node = shape};
    CAPTURE(name_of(shape), static_cast<int>(memory));
    const auto size = static_cast<std::size_t>(world.size());
    CHECK(run_cases(world, all_types_and_ops({0, 1, size - 1, size, size + 1, 257}), memory) == "");
}

TEST_CASE("counts that take several pieces", "[native][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{3}, {2, 1}, {2, 2, 2}}));
    const auto memory = GENERATE(Memory::kArena, Memory::kForeign, Memory::kMixed);
    CAPTURE(name_of(shape), static_cast<int>(memory));
    // Two pieces of 4 MiB, which pass between nodes, or five of 1 MiB; exactly one of the latter; two; two.
    const std::vector<Case> cases{{DType::f64, ReduceOp::Sum, 600'001},
                                  {DType::f32, ReduceOp::Avg, 1u << 18},
                                  {DType::bf16, ReduceOp::Sum, 600'001},
                                  {DType::i8, ReduceOp::Sum, 1'100'001}};
    CHECK(run_cases(LocalWorld{.ranks_per_node = shape}, cases, memory) == "");
}

TEST_CASE("sums of n floats are within n units of rounding of the exact sum", "[native][unit]") {
    const std::vector<int> shape{4, 4};
    const auto results = run_ranks({.ranks_per_node = shape}, [](Context& context) {
        std::vector<float> values(1000);
        for (std::size_t i = 0; i < values.size(); ++i)
            values[i] = 1.0F / static_cast<float>(1 + i + 1000 * static_cast<std::size_t>(context.rank()));
        context.world().all_reduce(buffer(std::span(values)), ReduceOp::Sum).wait();
        return values;
    });
    double worst = 0;
    for (std::size_t i = 0; i < 1000; ++i) {
        double exact = 0;
        for (std::size_t rank = 0; rank < 8; ++rank) exact += 1.0F / static_cast<float>(1 + i + 1000 * rank);
        worst = std::max(worst, std::fabs(results[0][i] - exact) / exact);
    }
    CHECK(worst <= 8 * 0x1p-24);
}

TEST_CASE("an element's sum does not depend on what else is in its buffer", "[native][unit]") {
    const std::vector<int> shape{3, 2};
    const auto results = run_ranks({.ranks_per_node = shape}, [](Context& context) {
        std::vector<float> whole(100'000);
        for (std::size_t i = 0; i < whole.size(); ++i)
            whole[i] = std::sin(static_cast<float>(i * 7 + static_cast<std::size_t>(context.rank())));
        std::vector<float> parts = whole;
        context.world().all_reduce(buffer(std::span(whole)), ReduceOp::Sum).wait();
        context.world().all_reduce(buffer(std::span(parts).first(33'333)), ReduceOp::Sum).wait();
        context.world().all_reduce(buffer(std::span(parts).subspan(33'333)), ReduceOp::Sum).wait();
        return whole == parts;
    });
    CHECK(results == std::vector<bool>(5, true));
}

TEST_CASE("a bucket may lie anywhere in the arena, at another place on every rank", "[native][unit]") {
    const auto results = run_ranks({.ranks_per_node = {4}}, [](Context& context) {
        auto* memory = static_cast<float*>(context.world().arena().allocate(5000 * sizeof(float)));
        const std::span<float> values(memory + 100 * static_cast<std::size_t>(context.rank()), 1000);
        std::fill(values.begin(), values.end(), 1.0F);
        context.world().all_reduce(buffer(values), ReduceOp::Sum).wait();
        float sum = 0;
        for (std::size_t i = 0; i < 5000; ++i) sum += memory[i];
        return sum;  // nothing outside the bucket was touched
    });
    CHECK(results == std::vector<float>(4, 4000.0F));
}
