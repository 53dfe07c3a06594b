// Failures of a reducer on one rank: the error of that rank, and how soon its peers get it.
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "ddp/ddp.hpp"
#include "tests/catch.hpp"
#include "tests/unit/worker_lib/reducer/reducer_world.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"

using Catch::Contains;
using ddp::Context;
using ddp::ErrorCode;
using ddp::GradientReducer;
using ddp::testing::kOneEach;
using ddp::testing::LocalWorld;
using ddp::testing::run_step;
using ddp::testing::try_ranks;
using ddp::testing::values;

namespace {

constexpr std::chrono::minutes kNoDeadline{5};  // no test waits for a deadline
constexpr std::chrono::seconds kSoon{60};

enum class Place { kNowhere, kPrepare, kLaunch, kComplete, kCallback };

/// Exchanges like the plain reducer, and throws in one of its calls.
class ThrowingHook final : public ddp::CommHook {
public:
    ThrowingHook(Place place, std::function<void()> raise) : place_(place), raise_(std::move(raise)) {}
    void prepare(ddp::ProcessGroup& group, const ddp::BucketPlan&) override {
        group_ = &group;
        raise_in(Place::kPrepare);
    }
    ddp::Work launch(const ddp::GradBucket& bucket) override {
        raise_in(Place::kLaunch);
        return group_->all_reduce(bucket.buffer, ddp::ReduceOp::Avg);
    }
    void complete(const ddp::GradBucket&) override { raise_in(Place::kComplete); }

private:
    void raise_in(Place place) const {
        if (place == place_) raise_();
    }

    const Place place_;
    const std::function<void()> raise_;
    ddp::ProcessGroup* group_ = nullptr;
};

[[noreturn]] void raise_runtime_error() { throw std::runtime_error("no such codec"); }
[[noreturn]] void raise_number() { throw 7; }

/// Returns the text of what `call` throws, also for exceptions that are numbers.
template <typename Call>
std::string thrown_by(Call call) {
    try {
        call();
    } catch (const std::exception& error) {
        return error.what();
    } catch (int number) {
        return "the number " + std::to_string(number);
    }
    return "nothing";
}

}  // namespace

TEST_CASE("an exception of a hook or a callback ends the reducer, here and on the peers", "[reducer]") {
    const auto place = GENERATE(Place::kLaunch, Place::kComplete, Place::kCallback);
    const bool number = GENERATE(false, true);
    CAPTURE(static_cast<int>(place), number);
    const auto raise = number ? raise_number : raise_runtime_error;
    const auto outcomes = try_ranks({.ranks_per_node = {2}, .timeout = kNoDeadline}, [&](Context& context) {
        const Place mine = context.rank() == 0 ? place : Place::kNowhere;
        GradientReducer reducer(context.world(), {{"a", 1}, {"b", 1}},
                                {.limits = kOneEach,
                                 .hook = std::make_shared<ThrowingHook>(mine, raise),
                                 .on_bucket_done = [&](const ddp::GradBucket&) {
                                     if (mine == Place::kCallback) raise();
                                 }});
        // A peer may have ended this backward well: then it hears of it in the next.
        const auto steps = [&] {
            run_step(reducer, 2, 1);
            run_step(reducer, 2, 1);
        };
        std::vector<std::string> texts{thrown_by(steps)};
        texts.push_back(thrown_by([&] { reducer.finish_backward(); }));
        texts.push_back(thrown_by([&] { reducer.begin_backward(); }));
        return texts;
    });
    const std::string text = number ? "not derived from std::exception" : "no such codec";
    REQUIRE(outcomes[0].value);
    CHECK(outcomes[0].value->at(0) == (number ? "the number 7" : "no such codec"));
    REQUIRE(outcomes[1].value);
    CHECK_THAT(outcomes[1].value->at(0), Contains(text) && Contains("rank 0"));
    for (const auto& outcome : outcomes) {
        CHECK_THAT(outcome.value->at(1), Contains("failed earlier") && Contains(text));
        CHECK_THAT(outcome.value->at(2), Contains("failed earlier") && Contains(text));
    }
}

TEST_CASE("peers get the error of a failed callback at once, not when the backward ends", "[reducer]") {
    std::atomic<bool> told = false;
    const auto outcomes = try_ranks({.ranks_per_node = {2}, .timeout = kNoDeadline}, [&](Context& context) {
        const auto fail = [&](const ddp::GradBucket&) {
            if (context.rank() == 0) throw std::runtime_error("the optimiser diverged");
        };
        GradientReducer reducer(context.world(), {{"a", 1}, {"b", 1}}, {.limits = kOneEach, .on_bucket_done = fail});
        reducer.begin_backward();
        reducer.mark_ready(1);
        if (context.rank() == 1) {
            const std::string text = thrown_by([&] {
                reducer.mark_ready(0);
                reducer.finish_backward();
            });
            told = true;
            return text;
        }
        const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(10);
        while (!told && std::chrono::steady_clock::now() < give_up) std::this_thread::yield();
        return thrown_by([&] { reducer.mark_ready(0); });
    });
    CHECK(told);
    CHECK(outcomes[0].value == "the optimiser diverged");
    REQUIRE(outcomes[1].value);
    CHECK_THAT(*outcomes[1].value, Contains("the optimiser diverged") && Contains("rank 0"));
}

TEST_CASE("when an exception ends a rank's backward, its peers get an error that names that rank alone", "[reducer]") {
    const auto outcomes = try_ranks({.ranks_per_node = {3}, .timeout = kNoDeadline}, [&](Context& context) {
        GradientReducer reducer(context.world(), {{"a", 1}, {"b", 1}}, {.limits = kOneEach});
        reducer.begin_backward();
        reducer.mark_ready(1);
        if (context.rank() == 1) throw std::out_of_range("the user's own");
        reducer.mark_ready(0);
        reducer.finish_backward();
    });
    for (const std::size_t rank : {0, 2}) {
        REQUIRE(outcomes[rank].ddp_error());
        const std::string text = outcomes[rank].text();
        CHECK_THAT(text, Contains("aborted by rank 1") && Contains("an exception ended its backward. See its output"));
        CHECK_THAT(text, !Contains("aborted by rank 0") && !Contains("aborted by rank 2"));
    }
}

TEST_CASE("when a reducer is destroyed in the middle of a backward, no peer is left waiting", "[reducer]") {
    const auto began = std::chrono::steady_clock::now();
    const bool callback = GENERATE(false, true);
    CAPTURE(callback);
    const auto outcomes = try_ranks({.ranks_per_node = {2}, .timeout = kNoDeadline}, [&](Context& context) {
        ddp::ReducerOptions options{.limits = kOneEach};
        if (callback) options.on_bucket_done = [](const ddp::GradBucket&) {};
        GradientReducer reducer(context.world(), {{"a", 1}, {"b", 1}}, options);
        reducer.begin_backward();
        reducer.mark_ready(1);
        if (context.rank() == 1) return;
        reducer.mark_ready(0);
        reducer.finish_backward();
    });
    REQUIRE(outcomes[0].ddp_error());
    CHECK_THAT(outcomes[0].text(), Contains("rank 1") && Contains("destroyed in the middle of a backward"));
    CHECK(outcomes[1].value);
    CHECK(std::chrono::steady_clock::now() - began < kSoon);
}

TEST_CASE("buckets of different backwards are never averaged with each other", "[reducer]") {
    const auto nodes = GENERATE(std::vector<int>{2}, std::vector<int>{1, 1});
    const bool hook = GENERATE(false, true);
    CAPTURE(nodes, hook);
    const auto outcomes = try_ranks({.ranks_per_node = nodes, .timeout = kNoDeadline}, [&](Context& context) {
        GradientReducer reducer(context.world(), {{"a", 1}},
                                {.hook = hook ? ddp::compress(ddp::DType::BF16) : nullptr});
        run_step(reducer, 1, 1);
        if (context.rank() == 1) {  // it believes that this one does not synchronise
            const auto guard = reducer.no_sync();
            run_step(reducer, 1, 1);
        }
        run_step(reducer, 1, 1);
    });
    for (const auto& outcome : outcomes) {
        REQUIRE(outcome.ddp_error());
        CHECK(outcome.ddp_error()->code() == ErrorCode::Mismatch);
        CHECK_THAT(outcome.text(), Contains("of step 2 ") && Contains("of step 3 ") && Contains("'bucket 0'"));
    }
}

TEST_CASE("when ranks disagree, the culprits are the outvoted ones", "[reducer]") {
    const auto& [ranks, expected] = GENERATE(values<std::pair<int, std::vector<int>>>({{2, {}}, {3, {0}}}));
    const auto outcomes = try_ranks({.ranks_per_node = {ranks}}, [](Context& context) {
        GradientReducer(context.world(), {{"a", context.rank() == 0 ? std::size_t{2} : std::size_t{3}}});
    });
    for (const auto& outcome : outcomes) {
        REQUIRE(outcome.ddp_error());
        CHECK(outcome.ddp_error()->culprits() == expected);
    }
}

TEST_CASE("a problem of one rank alone is reported on all ranks, before any rank waits", "[reducer]") {
    const auto began = std::chrono::steady_clock::now();
    const LocalWorld world{.ranks_per_node = {2}, .timeout = kNoDeadline, .init_timeout = kNoDeadline};
    SECTION("a parameter") {
        const auto outcomes = try_ranks(world, [](Context& context) {
            GradientReducer(context.world(), {{"tied", 2, ddp::DType::F32, context.rank()}});
        });
        for (const auto& outcome : outcomes) {
            REQUIRE(outcome.ddp_error());
            CHECK(outcome.ddp_error()->code() == ErrorCode::Mismatch);
            CHECK_THAT(outcome.text(), Contains("rank 0 (host ") && Contains("'tied'") && Contains("uses is 0"));
        }
    }
    SECTION("a hook that cannot be prepared") {
        const auto outcomes = try_ranks(world, [](Context& context) {
            const Place place = context.rank() == 0 ? Place::kPrepare : Place::kNowhere;
            GradientReducer reducer(context.world(), {{"a", 1}},
                                    {.hook = std::make_shared<ThrowingHook>(place, raise_runtime_error)});
            run_step(reducer, 1, 1);
        });
        CHECK(outcomes[0].error);
        CHECK_THAT(outcomes[1].text(), Contains("no such codec") && Contains("rank 0"));
    }
    SECTION("values to verify") {
        const auto outcomes = try_ranks(world, [](Context& context) {
            GradientReducer reducer(context.world(), {{"a", 1}, {"b", 1}});
            float value = 1;
            const std::vector<ddp::Buffer> params(static_cast<std::size_t>(1 + context.rank()), ddp::Buffer(value));
            reducer.verify_parameters(params);
        });
        for (const auto& outcome : outcomes) {
            REQUIRE(outcome.ddp_error());
            CHECK_THAT(outcome.text(), Contains("rank 0 (host ") && Contains("1 buffers for 2 parameters"));
        }
    }
    CHECK(std::chrono::steady_clock::now() - began < kSoon);
}

TEST_CASE("a mistake that all ranks make alike is reported as each rank's own", "[reducer]") {
    const auto outcomes = try_ranks({.ranks_per_node = {2}}, [](Context& context) {
        GradientReducer reducer(context.world(), {{"a", 1}, {"b", 1}});
        reducer.verify_parameters({});
    });
    for (const auto& outcome : outcomes) {
        REQUIRE(outcome.ddp_error());
        CHECK(outcome.ddp_error()->code() == ErrorCode::InvalidArgument);
        CHECK_THAT(outcome.text(), Contains("0 buffers for 2 parameters"));
    }
    const auto types = try_ranks({.ranks_per_node = {2}}, [](Context& context) {
        GradientReducer(context.world(), {{"steps", 1, ddp::DType::I64}});
    });
    for (const auto& outcome : types) {
        REQUIRE(outcome.ddp_error());
        CHECK(outcome.ddp_error()->code() == ErrorCode::InvalidArgument);
        CHECK_THAT(outcome.text(), Contains("'steps'") && Contains("i64"));
    }
}
