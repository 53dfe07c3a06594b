// The errors, here and on the other ranks, when a rank does not do what its Join has announced.
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

TEST_CASE("ranks that disagree on synchronising get an error before the step", "[join]") {
    const auto outcomes = try_ranks({.ranks_per_node = {3}, .timeout = std::chrono::minutes(5)}, [](Context& context) {
        GradientReducer reducer(context.world(), {{"a", 1}});
        Join join(context.world(), reducer);
        return join.more(context.rank() != 0, {.sync = context.rank() == 1});
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
                               const auto more = [&](bool sync) { static_cast<void>(join.more(true, {.sync = sync})); };
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

TEST_CASE("a rank that forgets the first more() gets an error at once, and the others learn the reason", "[join]") {
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

TEST_CASE("backwards of a Join that replaces another one have to be announced, too", "[join]") {
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

TEST_CASE("when a rank skips the backward that it announced, the others do not wait for it", "[join]") {
    const bool sync = GENERATE(true, false);  // the others are in their backward, or ask for the next step already
    CAPTURE(sync);
    ddp::testing::Gate gate(3);
    const auto outcomes =
        try_ranks({.ranks_per_node = {2, 1}, .timeout = std::chrono::minutes(5)}, [&](Context& context) {
            GradientReducer reducer(context.world(), {{"a", 1}});
            Join join(context.world(), reducer);
            ddp::testing::behind(gate, [&](Context& mine) {
                static_cast<void>(join.more(true, {.sync = sync}));
                if (mine.rank() != 1) {
                    reducer.begin_backward(sync);
                    reducer.mark_ready(0);
                    reducer.finish_backward();
                }
                static_cast<void>(join.more(true, {.sync = sync}));
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
        CHECK_THAT(text, Contains("the ranks disagree on the next backward") && Contains("; then together"));
}

TEST_CASE("a rank without batches that may not synchronise gets an error, and no rank waits for it", "[join]") {
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
