// All-reduce against the slow reference, bit for bit: worlds of all shapes, all types and reductions, small and odd
// counts, buffers inside and outside the arena. That every rank equals the reference says also that all ranks and all
// runs agree.

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/all_reduce_cases.hpp"

using namespace ddp;
using namespace ddp::testing;

TEST_CASE("all types, reductions and awkward counts, in worlds of all shapes", "[native][unit]") {
    const Setting setting =
        GENERATE(from_range(settings({{1}, {2}, {3}, {4}, {8}, {1, 1}, {2, 2}, {3, 1}, {1, 3, 2}})));
    CAPTURE(setting.text());
    CHECK(run_cases(setting, all_types_and_ops(awkward_counts(setting.size(), 257))) == "");
}

TEST_CASE("counts that take several pieces", "[native][unit]") {
    const Setting setting = GENERATE(from_range(long_settings({{3}, {2, 1}, {2, 2, 2}})));
    CAPTURE(setting.text());
    // Two pieces of 4 MiB, which pass between nodes, or five of 1 MiB; exactly one of the latter; two; two.
    const std::vector<Case> cases{{DType::f64, ReduceOp::Sum, 600'001},
                                  {DType::f32, ReduceOp::Avg, 1u << 18},
                                  {DType::bf16, ReduceOp::Sum, 600'001},
                                  {DType::i8, ReduceOp::Sum, 1'100'001}};
    CHECK(run_cases(setting, cases) == "");
}

TEST_CASE("long buffers outside the arena, copied to the slots both ways", "[native][unit]") {
    const Setting setting = GENERATE(from_range(long_settings({{2}, {3}})));
    CAPTURE(setting.text());
    // The first three of about a size go one way, the other, and the first again: pieces of 512 and of 256 KiB.
    std::vector<Case> cases;
    for (const std::size_t scale : {1, 5}) {
        cases.push_back({DType::f32, ReduceOp::Sum, scale * 500'009});
        cases.push_back({DType::bf16, ReduceOp::Avg, scale * 1'000'003});
        cases.push_back({DType::f64, ReduceOp::Max, scale * 250'007});
    }
    CHECK(run_cases(setting, cases) == "");
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
