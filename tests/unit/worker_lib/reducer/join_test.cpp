// Ranks with uneven numbers of batches.
#include <array>
#include <chrono>
#include <memory>
#include <optional>

#include "ddp/ddp.hpp"
#include "tests/catch.hpp"
#include "tests/unit/worker_lib/reducer/reducer_world.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"
#include "tests/unit/worker_lib/support/world_errors.hpp"

using Catch::Contains;
using ddp::Context;
using ddp::GradientReducer;
using ddp::Join;
using ddp::JoinOptions;
using ddp::testing::run_ranks;
using ddp::testing::try_ranks;
using ddp::testing::values;

namespace {

/// Rank r has r + 1 batches, each with a gradient of 12.
struct Epoch {
    std::vector<float> averages;  ///< of the steps that this rank made itself
    float shadowed = 0;           ///< what its gradient was at the end
    int last_active = -1;
    bool operator==(const Epoch&) const = default;
};

Epoch run_epoch(Context& context, JoinOptions options) {
    GradientReducer reducer(context.world(), {{"a", 3}, {"b", 1}},
                            {.limits = {.bucket_cap_bytes = 1, .first_bucket_cap_bytes = 1}});
    Epoch epoch;
    Join join(context.world(), reducer, options);
    for (int batches = context.rank() + 1; join.more(batches > 0); --batches) {
        ddp::testing::run_step(reducer, 2, 12);
        epoch.averages.push_back(values(reducer, 0)[2]);
    }
    epoch.shadowed = values(reducer, 1)[0];
    epoch.last_active = join.last_active();
    return epoch;
}

}  // namespace

TEST_CASE("ranks with fewer batches shadow the others until all have ended", "[join]") {
    const auto nodes = GENERATE(std::vector<int>{3}, std::vector<int>{1, 2});
    CAPTURE(nodes);
    SECTION("divided by all ranks") {
        const auto epochs = run_ranks({.ranks_per_node = nodes}, [](Context& c) { return run_epoch(c, {}); });
        CHECK(epochs[0] == Epoch{{12}, 4, 2});
        CHECK(epochs[1] == Epoch{{12, 8}, 4, 2});
        CHECK(epochs[2] == Epoch{{12, 8, 4}, 4, 2});
    }
    SECTION("divided by the ranks that have batches") {
        const auto epochs =
            run_ranks({.ranks_per_node = nodes}, [](Context& c) { return run_epoch(c, {.divide_by_initial = false}); });
        CHECK(epochs[2] == Epoch{{12, 12, 12}, 12, 2});
    }
}

TEST_CASE("with Early::Throw all ranks stop together and name the ranks that have ended", "[join]") {
    const auto outcomes = try_ranks({.ranks_per_node = {2, 1}}, [](Context& context) {
        return run_epoch(context, {.early = JoinOptions::Early::Throw});
    });
    for (const auto& outcome : outcomes) {
        REQUIRE(outcome.ddp_error());
        CHECK(outcome.ddp_error()->culprits() == std::vector<int>{0});
        CHECK_THAT(outcome.text(), Contains(ddp::testing::named(0) + ") has none left"));
    }
}

TEST_CASE("steps without sync are shadowed without sync, and accumulated gradients are not lost", "[join]") {
    // Rank 0 has one batch, rank 1 has two; only every second step synchronises.
    const auto averages = run_ranks({.ranks_per_node = {2}}, [](Context& context) {
        GradientReducer reducer(context.world(), {{"a", 1}});
        Join join(context.world(), reducer);
        float average = 0;
        int step = 0;
        const int batches = context.rank() == 0 ? 1 : 2;
        while (join.more(step < batches, {.sync = step % 2 == 1})) {
            reducer.begin_backward(step % 2 == 1);
            if (step % 2 == 0) values(reducer, 0)[0] = 0;
            values(reducer, 0)[0] += context.rank() == 0 ? 100.0f : 1.0f;
            reducer.mark_ready(0);
            reducer.finish_backward();
            ++step;
        }
        average = values(reducer, 0)[0];
        return average;
    });
    CHECK(averages == std::vector<float>{51, 51});
}

TEST_CASE("after an epoch the reducer divides by all ranks again, and a new epoch can begin", "[join]") {
    const auto averages = run_ranks({.ranks_per_node = {2}}, [](Context& context) {
        GradientReducer reducer(context.world(), {{"a", 1}});
        for (int epoch = 0; epoch < 2; ++epoch) {
            Join join(context.world(), reducer, {.divide_by_initial = false});
            for (int batches = context.rank() + epoch; join.more(batches > 0); --batches)
                ddp::testing::run_step(reducer, 1, 6);
        }
        ddp::testing::run_step(reducer, 1, context.rank() == 0 ? 2.0f : 4.0f);
        return values(reducer, 0)[0];
    });
    CHECK(averages == std::vector<float>{3, 3});
}

TEST_CASE("more() sums values over the ranks, and a rank that has ended gets the same totals", "[join]") {
    // Before its call number k, from 0, rank r has 10^r * (k + 1) and 1. Rank 0 has one batch, rank 1 three, rank 2
    // none.
    const auto totals = run_ranks({.ranks_per_node = {2, 1}}, [](Context& context) {
        GradientReducer reducer(context.world(), {{"a", 1}});
        Join join(context.world(), reducer);
        const int batches = std::array{1, 3, 0}[static_cast<std::size_t>(context.rank())];
        const double unit = std::array{1, 10, 100}[static_cast<std::size_t>(context.rank())];
        std::vector<double> total(2);
        for (int k = 0;; ++k) {
            std::array sums{unit * (k + 1), 1.0};
            const bool more = join.more(k < batches, {.sums = sums});
            total[0] += sums[0];
            total[1] += sums[1];
            if (!more) return total;
            ddp::testing::run_step(reducer, 1, 6);
        }
    });
    // Rank 0 calls twice (1 + 2), rank 1 four times (10 + 20 + 30 + 40), rank 2 once.
    CHECK(totals == std::vector<std::vector<double>>(3, {3 + 100 + 100, 7}));
}

TEST_CASE("if no rank has a batch the epoch is over at once", "[join]") {
    const auto outcomes = run_ranks({.ranks_per_node = {2}}, [](Context& context) {
        GradientReducer reducer(context.world(), {{"a", 1}});
        Join join(context.world(), reducer);
        return std::pair{join.more(false), join.last_active()};
    });
    CHECK(outcomes == std::vector(2, std::pair{false, -1}));
}

TEST_CASE("a bound gradient of a rank without batches counts as zero, not as the average before", "[join]") {
    // Rank 1 has the first step only; the others are two without sync and one with it.
    const auto averages = run_ranks({.ranks_per_node = {2}}, [](Context& context) {
        std::vector<float> bound(1);
        GradientReducer reducer(context.world(), {{"a", 1}});
        reducer.bind(0, bound);
        Join join(context.world(), reducer);
        const int batches = context.rank() == 0 ? 3 : 1;
        int step = 0;
        while (join.more(step < batches, {.sync = step != 1})) {
            reducer.begin_backward(step != 1);
            if (step < 2) bound[0] = 0;
            bound[0] += 4;
            reducer.mark_ready(0);
            reducer.finish_backward();
            ++step;
        }
        return bound[0];
    });
    CHECK(averages == std::vector<float>{4, 4});  // (4 + 4 + 0) / 2
}

TEST_CASE("a reducer may be moved while a Join and a guard refer to it", "[join]") {
    const auto synchronised = run_ranks({}, [](Context& context) {
                                  std::optional<GradientReducer> after;  // outlives the Join
                                  GradientReducer before(context.world(), {{"a", 1}});
                                  Join join(context.world(), before);
                                  std::vector<bool> seen;
                                  {
                                      const auto guard = before.no_sync();
                                      after.emplace(std::move(before));
                                      seen.push_back(join.more(true, {.sync = false}));
                                      seen.push_back(ddp::testing::run_step(*after, 1, 1).synchronised);
                                  }
                                  seen.push_back(join.more(true));
                                  seen.push_back(ddp::testing::run_step(*after, 1, 1).synchronised);
                                  return seen;
                              }).front();
    CHECK(synchronised == std::vector<bool>{true, false, true, true});
}

TEST_CASE("the ready order of a rank that only shadows does not rebuild the plan", "[join]") {
    const std::vector<std::size_t> order{2, 0, 1};
    const auto plans = run_ranks({.ranks_per_node = {2}}, [&](Context& context) {
        const std::vector<ddp::ParamSpec> specs{{"a", 1}, {"b", 1}, {"c", 1}};
        GradientReducer reducer(context.world(), specs, {.limits = ddp::testing::kOneEach, .rebuild = true});
        std::vector<ddp::BucketPlan> seen;
        for (const int batches_of_rank_0 : {0, 2}) {
            Join join(context.world(), reducer);
            const int batches = context.rank() == 0 ? batches_of_rank_0 : 2;
            for (int step = 0; join.more(step < batches); ++step) {
                reducer.begin_backward();
                for (const std::size_t i : order) {
                    values(reducer, i)[0] = static_cast<float>(i);
                    reducer.mark_ready(i);
                }
                reducer.finish_backward();
            }
            seen.push_back(reducer.plan());
        }
        return seen;
    });
    const std::vector<ddp::ParamSpec> specs{{"a", 1}, {"b", 1}, {"c", 1}};
    for (const auto& seen : plans) {
        CHECK(seen[0] == plan_buckets(specs, ddp::testing::kOneEach));
        CHECK(seen[1] == plan_buckets(specs, ddp::testing::kOneEach, order));
    }
}
