// All-reduce against a scalar reference: worlds of all shapes, all types and operations, buffers in and outside the arena.

#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/local_world.hpp"

using ddp::testing::LocalWorld;
using ddp::testing::run_ranks;

TEST_CASE("every rank ends with the sum", "[native][unit]") {
    const auto ranks = GENERATE(1, 2, 3, 4, 8);
    const auto results = run_ranks(LocalWorld{.ranks_per_node = {ranks}}, [](ddp::Context& context) {
        std::vector<float> values(1000, static_cast<float>(context.rank() + 1));
        context.world().all_reduce(ddp::buffer(std::span(values)), ddp::ReduceOp::Sum).wait();
        return values;
    });
    for (const auto& values : results) CHECK(values == std::vector<float>(1000, static_cast<float>(ranks * (ranks + 1) / 2)));
}

TEST_CASE("nodes add up over TCP", "[native][unit]") {
    const auto results = run_ranks(LocalWorld{.ranks_per_node = {3, 1, 2}}, [](ddp::Context& context) {
        std::vector<float> values(100000, static_cast<float>(context.rank() + 1));
        context.world().all_reduce(ddp::buffer(std::span(values)), ddp::ReduceOp::Sum).wait();
        return values;
    });
    for (const auto& values : results) CHECK(values == std::vector<float>(100000, 21.0F));
}
