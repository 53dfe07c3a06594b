// The memory that a ShardedParameters reports.
#include <string>
#include <vector>

#include "ddp/ddp.hpp"
#include "tests/catch.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"
#include "worker_lib/src/sharding/read_only_view.hpp"

using Catch::Contains;
using ddp::DType;
using ddp::Sharding;
using ddp::ShardOptions;
using ddp::ShardPlan;

namespace {

constexpr std::size_t kRanks = 4;
constexpr std::size_t kWhole[] = {4 * 64, 4 * 256, 4 * 32};  // elements of the units below, with padding
constexpr std::size_t kSum = 4 * 352;

/// `mapped`: units are the pages of their parts.
ShardPlan plan_of(ShardOptions options, bool mapped = false) {
    options.mapped = mapped;
    return ddp::testing::run_ranks({.ranks_per_node = {kRanks}},
                                   [&](ddp::Context& context) {
                                       const ddp::ShardedParameters model(
                                           context.world(), {{{"a", 100}, {"b", 100}}, {{"c", 1000}}, {{"d", 1}}},
                                           options);
                                       return model.plan();
                                   })
        .back();
}

}  // namespace

TEST_CASE("the plan has each unit, and which is the largest", "[sharding]") {
    const ShardPlan plan = plan_of({.param_dtype = DType::BF16});
    CHECK(plan.ranks == kRanks);
    REQUIRE(plan.units.size() == 3);
    CHECK(plan.largest == 1);
    CHECK(plan.units[0].name == "a");
    CHECK(plan.units[0].params == 2);
    CHECK(plan.units[0].elements == 200);
    CHECK(plan.units[0].part_bytes == 64 * 4);
    CHECK(plan.units[0].whole_bytes == kWhole[0] * 2);
    CHECK(plan.units[1].elements == 1000);
    CHECK(plan.units[2].whole_bytes == kWhole[2] * 2);
}

TEST_CASE("the plan has the memory that each strategy keeps whole", "[sharding]") {
    const std::size_t part = kSum / kRanks * 4;
    const ShardPlan full = plan_of({.sharding = Sharding::Full});
    CHECK(full.parts == part);
    CHECK(full.grad_parts == part);
    CHECK(full.array == part);
    CHECK(full.whole_params == 2 * kWhole[1] * 4);
    CHECK(full.whole_grads == 2 * kWhole[1] * 4);
    CHECK(full.total() == 2 * part + 4 * kWhole[1] * 4);
    CHECK(!full.params_stay);
    CHECK(!full.grads_stay);
    CHECK(plan_of({.sharding = Sharding::Full, .prefetch = 0}).whole_params == kWhole[1] * 4);
    CHECK(plan_of({.sharding = Sharding::Full, .prefetch = 9}).whole_params == 3 * kWhole[1] * 4);

    const ShardPlan grad = plan_of({.sharding = Sharding::GradOp});
    CHECK(grad.parts == 0);  // inside the whole units
    CHECK(grad.whole_params == kSum * 4);
    CHECK(grad.whole_grads == 2 * kWhole[1] * 4);

    const ShardPlan optimizer = plan_of({.sharding = Sharding::Optimizer});
    CHECK(optimizer.whole_grads == kSum * 4);
    CHECK(optimizer.array == part);

    const ShardPlan none = plan_of({.sharding = Sharding::None});
    CHECK(none.ranks == 1);
    CHECK(none.array == (256 + 1024 + 32) * 4);
    CHECK(none.whole_grads == none.array);
}

TEST_CASE("narrow parameters and gradients need half the memory while they are whole", "[sharding]") {
    const std::size_t part = kSum / kRanks * 4;
    const ShardPlan full = plan_of({.param_dtype = DType::BF16, .reduce_dtype = DType::F16});
    CHECK(full.parts == part + part / 2);  // and once as bf16, from which the others gather
    CHECK(full.whole_params == 2 * kWhole[1] * 2);
    CHECK(full.whole_grads == 2 * kWhole[1] * 2);
    const ShardPlan grad = plan_of({.sharding = Sharding::GradOp, .param_dtype = DType::BF16});
    CHECK(grad.parts == part);
    CHECK(grad.whole_params == kSum * 2);
}

TEST_CASE("units that are mapped need no memory while they are whole", "[sharding]") {
    const std::size_t kPage = ddp::detail::page_bytes();
    for (const Sharding sharding : {Sharding::Full, Sharding::GradOp, Sharding::Optimizer}) {
        const ShardPlan plan = plan_of({.sharding = sharding}, true);
        CHECK(plan.mapped);
        CHECK(plan.params_stay);
        CHECK(plan.parts == 3 * kPage);  // one for each unit
        CHECK(plan.whole_params == 0);
    }
    CHECK(plan_of({.param_dtype = DType::BF16}, true).parts == 3 * (2 * kPage + kPage));
    CHECK_THAT(to_string(plan_of({}, true)), Contains("whole parameters                0 B  mapped: "));
}

TEST_CASE("the plan as a table has units, sizes and the largest unit", "[sharding]") {
    const std::string text = to_string(plan_of({.sharding = Sharding::Full}));
    INFO(text);
    CHECK_THAT(text, Contains("3 units, divided among 4 ranks (Sharding::Full)\n"));
    CHECK_THAT(
        text, Contains("     1  c                              1           1000     1.0 kB     4.1 kB  the largest\n"));
    CHECK_THAT(text, Contains("parts of parameters          1.4 kB\n"));
    CHECK_THAT(text, Contains("together                    19.2 kB\n"));
    CHECK_THAT(to_string(plan_of({.sharding = Sharding::None})), Contains("divided among 1 rank (Sharding::None)"));
}
