#include <chrono>
#include <memory>
#include <optional>

#include "ddp/ddp.hpp"
#include "tests/catch.hpp"
#include "tests/unit/worker_lib/local_world.hpp"
#include "tests/unit/worker_lib/reducer_world.hpp"
#include "tests/unit/worker_lib/world_errors.hpp"

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

TEST_CASE("with Early::Throw all ranks stop together and say who has ended", "[join]") {
    const auto outcomes = try_ranks({.ranks_per_node = {2, 1}}, [](Context& context) {
        return run_epoch(context, {.early = JoinOptions::Early::Throw});
    });
    for (const auto& outcome : outcomes) {
        REQUIRE(outcome.ddp_error());
        CHECK(outcome.ddp_error()->culprits() == std::vector<int>{0});
        CHECK_THAT(outcome.text(), Contains(ddp::testing::named(0) + ") has none left"));
    }
}

TEST_CASE("steps without sync are shadowed without sync, and what a rank had gathered is not lost", "[join]") {
    // Rank 0 has one batch, rank 1 has two; only every second step synchronises.
    const auto averages = run_ranks({.ranks_per_node = {2}}, [](Context& context) {
        GradientReducer reducer(context.world(), {{"a", 1}});
        Join join(context.world(), reducer);
        float average = 0;
        int step = 0;
        const int batches = context.rank() == 0 ? 1 : 2;
        while (join.more(step < batches, step % 2 == 1)) {
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

TEST_CASE("after an epoch the reducer divides by all ranks again, and a new one can begin", "[join]") {
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

TEST_CASE("nobody has a batch: the epoch is over at once", "[join]") {
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
        reducer.bind(0, ddp::buffer(std::span(bound)));
        Join join(context.world(), reducer);
        const int batches = context.rank() == 0 ? 3 : 1;
        int step = 0;
        while (join.more(step < batches, step != 1)) {
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

TEST_CASE("ranks that disagree on synchronising are told before the step", "[join]") {
    const auto outcomes = try_ranks({.ranks_per_node = {3}, .timeout = std::chrono::minutes(5)}, [](Context& context) {
        GradientReducer reducer(context.world(), {{"a", 1}});
        Join join(context.world(), reducer);
        return join.more(context.rank() != 0, context.rank() == 1);
    });
    for (const auto& outcome : outcomes) {
        REQUIRE(outcome.ddp_error());
        CHECK(outcome.ddp_error()->code() == ddp::ErrorCode::Mismatch);
        CHECK(outcome.ddp_error()->culprits().empty());  // one against one
        CHECK_THAT(outcome.text(),
                   Contains(ddp::testing::named(1) + ") one with sync, but " + ddp::testing::named(2) + ")"));
    }
}

TEST_CASE("a group that is smaller than the reducer's is refused", "[join]") {
    const auto outcomes = try_ranks({.ranks_per_node = {2}}, [](Context& context) {
        GradientReducer reducer(context.world(), {{"a", 1}});
        const auto alone = context.world().split(context.rank(), 0, "alone");
        Join join(*alone, reducer);
    });
    REQUIRE(outcomes[0].ddp_error());
    CHECK(outcomes[0].ddp_error()->code() == ddp::ErrorCode::InvalidArgument);
    CHECK_THAT(outcomes[0].text(), Contains("1") && Contains("2"));
}

TEST_CASE("a backward that was not announced, or announced otherwise, is refused", "[join]") {
    const auto texts = run_ranks({}, [](Context& context) {
                           GradientReducer reducer(context.world(), {{"a", 1}});
                           std::vector<std::string> seen;
                           const auto attempt = [&](auto call) {
                               try {
                                   call();
                                   seen.emplace_back("accepted");
                               } catch (const ddp::Error& error) {
                                   seen.emplace_back(error.what());
                               }
                           };
                           const auto step = [&] { ddp::testing::run_step(reducer, 1, 1); };
                           {
                               Join join(context.world(), reducer);
                               const auto more = [&](bool sync) { static_cast<void>(join.more(true, sync)); };
                               attempt(step);
                               more(true);
                               {
                                   const auto guard = reducer.no_sync();
                                   attempt(step);
                               }
                               attempt(step);
                               attempt(step);
                               more(false);
                               attempt(step);
                               reducer.begin_backward(false);
                               reducer.mark_ready(0);
                               reducer.finish_backward();
                               attempt([&] { static_cast<void>(join.more(false)); });
                               attempt(step);
                               more(true);
                           }
                           attempt(step);
                           return seen;
                       }).front();
    REQUIRE(texts.size() == 8);
    CHECK_THAT(texts[0], Contains("Join::more() was not called"));  // not even the first one
    CHECK_THAT(texts[1], Contains("a backward without sync, but") && Contains("announced one with sync"));
    CHECK(texts[2] == "accepted");
    CHECK_THAT(texts[3], Contains("Join::more() was not called"));
    CHECK_THAT(texts[4], Contains("a backward with sync, but") && Contains("announced one without sync"));
    CHECK(texts[5] == "accepted");
    CHECK_THAT(texts[6], Contains("more() has returned false") && Contains("Leave the loop"));
    CHECK(texts[7] == "accepted");  // the Join has gone
}

TEST_CASE("a rank that forgets the first more() is told at once, and the others of what it did", "[join]") {
    const auto began = std::chrono::steady_clock::now();
    const auto outcomes =
        try_ranks({.ranks_per_node = {2, 1}, .timeout = std::chrono::minutes(5)}, [&](Context& context) {
            GradientReducer reducer(context.world(), {{"a", 1}});
            Join join(context.world(), reducer);
            if (context.rank() != 1) static_cast<void>(join.more(true));
            ddp::testing::run_step(reducer, 1, 1);
        });
    REQUIRE(outcomes[1].ddp_error());
    CHECK(outcomes[1].ddp_error()->code() == ddp::ErrorCode::InvalidArgument);
    CHECK_THAT(outcomes[1].text(), Contains("Join::more() was not called before it. Call it"));
    for (const std::size_t rank : {0, 2}) {
        REQUIRE(outcomes[rank].ddp_error());
        CHECK(outcomes[rank].ddp_error()->culprits() == std::vector<int>{1});
    }
    CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds(60));
}

TEST_CASE("a Join that takes another one's place has its backwards announced, too", "[join]") {
    const bool epoch_ended = GENERATE(false, true);
    const auto texts = run_ranks({}, [&](Context& context) {
        GradientReducer reducer(context.world(), {{"a", 1}});
        auto join = std::make_unique<Join>(context.world(), reducer);
        if (epoch_ended) static_cast<void>(join->more(false));
        join = std::make_unique<Join>(context.world(), reducer);  // the first one goes after the second has come
        std::vector<std::string> seen;
        for (const bool announced : {false, true}) {
            if (announced) static_cast<void>(join->more(true));
            try {
                ddp::testing::run_step(reducer, 1, 1);
                seen.emplace_back("accepted");
            } catch (const ddp::Error& error) {
                seen.emplace_back(error.what());
            }
        }
        join.reset();
        ddp::testing::run_step(reducer, 1, 1);
        return seen;
    });
    CHECK_THAT(texts.front()[0], Contains("Join::more() was not called"));
    CHECK(texts.front()[1] == "accepted");
}

TEST_CASE("when a rank leaves out the backward that it announced, the others do not wait for it", "[join]") {
    const bool sync = GENERATE(true, false);  // the others are in their backward, or ask for the next step already
    CAPTURE(sync);
    ddp::testing::Gate gate(3);
    const auto outcomes =
        try_ranks({.ranks_per_node = {2, 1}, .timeout = std::chrono::minutes(5)}, [&](Context& context) {
            GradientReducer reducer(context.world(), {{"a", 1}});
            Join join(context.world(), reducer);
            ddp::testing::behind(gate, [&](Context& mine) {
                static_cast<void>(join.more(true, sync));
                if (mine.rank() != 1) {
                    reducer.begin_backward(sync);
                    reducer.mark_ready(0);
                    reducer.finish_backward();
                }
                static_cast<void>(join.more(true, sync));
            })(context);
        });
    REQUIRE(outcomes[1].ddp_error());
    CHECK(outcomes[1].ddp_error()->code() == ddp::ErrorCode::InvalidArgument);
    for (const std::size_t rank : {0, 2}) {
        REQUIRE(outcomes[rank].ddp_error());
        CHECK(outcomes[rank].ddp_error()->culprits() == std::vector<int>{1});
        CHECK_THAT(outcomes[rank].text(),
                   Contains("aborted by " + ddp::testing::named(1)) && Contains("a backward that was not made"));
    }
}

TEST_CASE("an announcement holds until the ranks agree on the step", "[join]") {
    const auto texts = run_ranks({.ranks_per_node = {2}}, [](Context& context) {
        GradientReducer reducer(context.world(), {{"a", 1}}, {.check_every_step = true});
        std::optional<Join> join(std::in_place, context.world(), reducer);
        static_cast<void>(join->more(true));
        if (context.rank() == 1) join.reset();  // and does as it likes
        std::string text = "no difference";
        try {
            reducer.begin_backward(context.rank() == 0);
        } catch (const ddp::Error& error) {
            text = error.what();
        }
        text += ddp::testing::run_step(reducer, 1, 1).synchronised ? "; then together" : "; then apart";
        return text;
    });
    for (const std::string& text : texts)
        CHECK_THAT(text, Contains("the ranks disagree on the backward") && Contains("; then together"));
}

TEST_CASE("a rank without batches that may not synchronise says so, and nobody waits for it", "[join]") {
    const auto outcomes = try_ranks({.ranks_per_node = {2}, .timeout = std::chrono::minutes(5)}, [](Context& context) {
        GradientReducer reducer(context.world(), {{"a", 1}});
        Join join(context.world(), reducer);
        if (context.rank() == 0) {
            const auto guard = reducer.no_sync();
            return join.more(false);
        }
        const bool more = join.more(true);
        ddp::testing::run_step(reducer, 1, 1);
        return more;
    });
    CHECK_THAT(outcomes[0].text(), Contains("no_sync()"));
    REQUIRE(outcomes[1].ddp_error());
    CHECK_THAT(outcomes[1].text(), Contains("rank 0"));
}

TEST_CASE("a reducer may be moved while a Join and a guard know it", "[join]") {
    const auto synchronised = run_ranks({}, [](Context& context) {
                                  std::optional<GradientReducer> after;  // outlives the Join
                                  GradientReducer before(context.world(), {{"a", 1}});
                                  Join join(context.world(), before);
                                  std::vector<bool> seen;
                                  {
                                      const auto guard = before.no_sync();
                                      after.emplace(std::move(before));
                                      seen.push_back(join.more(true, false));
                                      seen.push_back(ddp::testing::run_step(*after, 1, 1).synchronised);
                                  }
                                  seen.push_back(join.more(true));
                                  seen.push_back(ddp::testing::run_step(*after, 1, 1).synchronised);
                                  return seen;
                              }).front();
    CHECK(synchronised == std::vector<bool>{true, false, true, true});
}

TEST_CASE("a plan is not made anew by the order of a rank that only shadows", "[join]") {
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
