// Plans that change: rebuilt by ready order, or taken from an earlier run.
#include <algorithm>
#include <stop_token>
#include <thread>

#include "ddp/ddp.hpp"
#include "tests/catch.hpp"
#include "tests/unit/worker_lib/reducer/reducer_world.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"

using Catch::Contains;
using ddp::BucketPlan;
using ddp::Context;
using ddp::GradientReducer;
using ddp::ParamSpec;
using ddp::ReducerOptions;
using ddp::testing::all_are;
using ddp::testing::kOneEach;
using ddp::testing::run_ranks;
using ddp::testing::run_step;
using ddp::testing::try_ranks;
using ddp::testing::values;

TEST_CASE("rebuild follows the order in which rank 0's gradients became ready", "[reducer]") {
    const std::vector<std::size_t> order{2, 0, 3, 1};
    const auto outcomes = run_ranks({.ranks_per_node = {2, 1}}, [&](Context& context) {
        const auto mine = static_cast<float>(context.rank());
        GradientReducer reducer(context.world(), {{"a", 8}, {"b", 8}, {"c", 8}, {"d", 8}},
                                {.limits = kOneEach, .rebuild = true});
        const auto first_of_buckets = [&] {
            std::vector<std::size_t> params;
            for (const auto& bucket : reducer.plan().buckets) params.push_back(bucket.slots.front().param);
            return params;
        };
        const auto before = first_of_buckets();
        std::vector<bool> right;
        for (int step = 0; step < 3; ++step) {
            reducer.begin_backward();
            auto mark_order = order;
            if (context.rank() != 0) std::ranges::reverse(mark_order);
            for (const std::size_t i : mark_order) {
                std::ranges::fill(values(reducer, i), mine + static_cast<float>(i));
                reducer.mark_ready(i);
            }
            reducer.finish_backward();
            for (std::size_t i = 0; i < 4; ++i) right.push_back(all_are(values(reducer, i), 1 + static_cast<float>(i)));
        }
        return std::tuple{before, first_of_buckets(), right, reducer.stats().out_of_order};
    });
    for (const auto& [before, after, right, out_of_order] : outcomes) {
        CHECK(before == std::vector<std::size_t>{3, 2, 1, 0});
        CHECK(after == order);
        CHECK(right == std::vector<bool>(12, true));
    }
    CHECK(std::get<3>(outcomes[0]) == 2);  // of the first step: c and a wait for d. In the new plan no bucket waits.
}

TEST_CASE("any thread may read stats while the plan is rebuilt", "[reducer]") {
    const auto most = run_ranks({.ranks_per_node = {2}}, [&](Context& context) {
        GradientReducer reducer(context.world(), {{"a", 8}, {"b", 8}, {"c", 8}}, {.limits = kOneEach, .rebuild = true});
        std::size_t done = 0;
        std::jthread monitor([&](const std::stop_token& stop) {
            while (!stop.stop_requested()) done = std::max(done, reducer.stats().buckets_done);
        });
        for (int step = 0; step < 3; ++step) {
            reducer.begin_backward();
            for (const std::size_t i : {1, 0, 2}) reducer.mark_ready(i);
            reducer.finish_backward();
        }
        monitor.request_stop();
        monitor.join();
        return done;
    });
    for (const std::size_t done : most) CHECK(done <= 3);
}

namespace {

/// Exchanges like the plain reducer; on rank 1 it cannot be prepared for a second plan.
class UnpreparedHook final : public ddp::CommHook {
public:
    void prepare(ddp::ProcessGroup& group, const BucketPlan&) override {
        if (group_ != nullptr && group.rank() == 1) throw std::runtime_error("no memory for the new plan");
        group_ = &group;
    }
    ddp::Work launch(const ddp::GradBucket& bucket) override {
        return group_->all_reduce(bucket.buffer, ddp::ReduceOp::Avg);
    }
    void complete(const ddp::GradBucket&) override {}

private:
    ddp::ProcessGroup* group_ = nullptr;
};

}  // namespace

TEST_CASE("a rebuild that fails on one rank ends the reducer on all", "[reducer]") {
    const auto outcomes = try_ranks({.ranks_per_node = {2}, .timeout = std::chrono::minutes(5)}, [](Context& context) {
        GradientReducer reducer(context.world(), {{"a", 1}, {"b", 1}},
                                {.limits = kOneEach, .rebuild = true, .hook = std::make_shared<UnpreparedHook>()});
        const auto step = [&] {
            reducer.begin_backward();
            for (const std::size_t i : {0u, 1u}) reducer.mark_ready(i);
            reducer.finish_backward();
        };
        step();
        try {
            step();
        } catch (const std::runtime_error&) {
            if (context.rank() == 0) throw;
            step();  // still unusable
        }
    });
    for (const auto& outcome : outcomes) {
        REQUIRE(outcome.ddp_error());
        CHECK(outcome.ddp_error()->code() == ddp::ErrorCode::Aborted);
        CHECK_THAT(outcome.text(), Contains("no memory for the new plan"));
    }
}

TEST_CASE("a plan is taken from an earlier run, if it fits", "[reducer]") {
    const std::vector<ParamSpec> specs{{"a", 3}, {"b", 4}};
    const std::vector<std::size_t> order{0, 1};
    const BucketPlan saved = BucketPlan::from_words(plan_buckets(specs, kOneEach, order).words());
    const auto plans = run_ranks({.ranks_per_node = {2}}, [&](Context& context) {
        GradientReducer reducer(context.world(), specs, {.plan = saved});
        run_step(reducer, 2, static_cast<float>(context.rank()));
        return std::pair{reducer.plan(), values(reducer, 1)[3]};
    });
    CHECK(plans == std::vector(2, std::pair{saved, 0.5f}));

    const auto overlap = try_ranks({.ranks_per_node = {2}}, [&](Context& context) {
        GradientReducer(context.world(), {{"a", 3}, {"b", 400}}, {.plan = saved});
    });
    CHECK_THAT(overlap[0].text(), Contains("'b'") && Contains("does not fit between byte 0 and the end of its bucket"));
    const auto different = try_ranks({.ranks_per_node = {2}}, [&](Context& context) {
        ReducerOptions options;
        if (context.rank() == 1) options.plan = saved;
        GradientReducer(context.world(), specs, options);
    });
    CHECK_THAT(different[1].text(), Contains("disagree on the bucket plan"));
    // One plan has both in one bucket, the other each in its own.
    CHECK_THAT(
        different[0].text(),
        Contains(") has bucket 0 with 2 parameters in 256 bytes of f32, the first of them parameter 1 'b' f32[4], "
                 "but rank 1 (host ") &&
            Contains(") has bucket 0 with 1 parameter in 128 bytes of f32, the first of them parameter 0 'a' f32[3]"
                     " (ranks that differ from rank 0: rank 1). Pass the same ReducerOptions::plan on every rank"));

    BucketPlan shifted = plan_buckets(specs, {}, order);
    shifted.buckets[0].slots[1].offset_bytes += 128;
    shifted.buckets[0].bytes += 128;
    BucketPlan padded = plan_buckets(specs, {}, order);
    padded.buckets[0].bytes += 128;
    const auto inside = try_ranks({.ranks_per_node = {2}}, [&](Context& context) {
        GradientReducer(context.world(), specs, {.plan = context.rank() == 0 ? shifted : padded});
    });
    CHECK_THAT(inside[1].text(), Contains(") has parameter 1 'b' f32[4] at byte 256 of bucket 0, but rank 1") &&
                                     Contains(") has parameter 1 'b' f32[4] at byte 128 of bucket 0"));
}
