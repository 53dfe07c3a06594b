#include <algorithm>
#include <cfenv>
#include <cmath>
#include <random>
#include <thread>

#include "ddp/ddp.hpp"
#include "ddp/float16.hpp"
#include "tests/catch.hpp"
#include "tests/unit/worker_lib/reducer/reducer_world.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"

using Catch::Contains;
using ddp::Context;
using ddp::DType;
using ddp::GradientReducer;
using ddp::testing::run_ranks;
using ddp::testing::run_step;
using ddp::testing::values;

namespace {

float rounded(float value, DType type) {
    return type == DType::F16 ? float{ddp::Float16(value)} : float{ddp::BFloat16(value)};
}

/// Returns an element of rank r's gradient: a value that 16 bits cannot hold exactly.
float gradient(int rank, std::size_t element) {
    return 0.1f + 0.37f * static_cast<float>(rank) + 0.0113f * static_cast<float>(element);
}

}  // namespace

TEST_CASE("compressed gradients are rounded by each rank, summed in f32 and rounded once", "[reducer][compress]") {
    const auto type = GENERATE(DType::F16, DType::BF16);
    const auto nodes = GENERATE(std::vector<int>{3}, std::vector<int>{2, 1});
    CAPTURE(to_string(type), nodes);
    constexpr std::size_t kCount = 1500;  // more than one block of the conversion
    const auto wrong = run_ranks({.ranks_per_node = nodes}, [&](Context& context) {
        GradientReducer reducer(
            context.world(), {{"small", 3}, {"a", kCount}, {"wide", 5, DType::F64}},
            {.limits = {.bucket_cap_bytes = 4000, .first_bucket_cap_bytes = 64}, .hook = ddp::compress(type)});
        int mistakes = 0;
        for (int step = 0; step < 2; ++step) {
            reducer.begin_backward();
            auto* wide = static_cast<double*>(reducer.grad(2).data);
            std::fill_n(wide, 5, 1e-17 * context.rank());
            reducer.mark_ready(2);
            for (const std::size_t i : {1u, 0u}) {
                const auto view = values(reducer, i);
                for (std::size_t j = 0; j < view.size(); ++j) view[j] = gradient(context.rank(), j);
                reducer.mark_ready(i);
            }
            reducer.finish_backward();
            const auto view = values(reducer, 1);
            for (std::size_t j = 0; j < kCount; ++j) {
                float sum = 0;
                for (int rank = 0; rank < 3; ++rank) sum += rounded(gradient(rank, j), type);
                if (view[j] != rounded(sum * (1.0f / 3.0f), type)) ++mistakes;
            }
            if (wide[4] != Approx(1e-17)) ++mistakes;  // f64 travels as it is
        }
        return mistakes;
    });
    CHECK(wrong == std::vector<int>(3, 0));
}

TEST_CASE("the sum of large gradients does not overflow in f16", "[reducer][compress]") {
    const auto average = run_ranks({.ranks_per_node = {4}}, [](Context& context) {
        GradientReducer reducer(context.world(), {{"a", 1}}, {.hook = ddp::compress(DType::F16)});
        run_step(reducer, 1, 60000);
        return values(reducer, 0)[0];
    });
    CHECK(average == std::vector<float>(4, 60000));
}

TEST_CASE("error feedback adds to later steps what rounding took from earlier ones", "[reducer][compress]") {
    const bool feedback = GENERATE(false, true);
    CAPTURE(feedback);
    constexpr int kSteps = 256;
    constexpr float kGradient = 1.0f + 1.0f / 512;  // halfway between 1 and the next bf16 is 1 + 1/256: rounds to 1
    const auto sums = run_ranks({.ranks_per_node = {2}}, [&](Context& context) {
        GradientReducer reducer(context.world(), {{"a", 40}, {"b", 7}},
                                {.hook = ddp::compress(DType::BF16, {.error_feedback = feedback})});
        double sum = 0;
        for (int step = 0; step < kSteps; ++step) {
            run_step(reducer, 2, kGradient);
            sum += values(reducer, 1)[6];
        }
        return sum;
    });
    const double exact = double{kGradient} * kSteps;
    for (const double sum : sums) {
        if (feedback)
            CHECK(std::abs(sum - exact) <= 1.0 / 128);  // never more than one rounding away
        else
            CHECK(sum == kSteps);
    }
}

TEST_CASE("error feedback survives a rebuilt plan, and forgets infinite values", "[reducer][compress]") {
    const auto outcomes = run_ranks({.ranks_per_node = {2}}, [](Context& context) {
        GradientReducer reducer(context.world(), {{"a", 3}, {"b", 3}},
                                {.limits = {.bucket_cap_bytes = 1, .first_bucket_cap_bytes = 1},
                                 .rebuild = true,
                                 .hook = ddp::compress(DType::F16, {.error_feedback = true})});
        const auto step = [&](float a, float b) {
            reducer.begin_backward();
            std::ranges::fill(values(reducer, 0), a);
            std::ranges::fill(values(reducer, 1), b);
            reducer.mark_ready(0);  // the other order than that of the first plan
            reducer.mark_ready(1);
            reducer.finish_backward();
            return std::pair{values(reducer, 0)[2], values(reducer, 1)[2]};
        };
        const auto first = step(2049, 1e30f);  // f16 has 2048 and 2050 there, and nothing near 1e30
        const auto second = step(2048, 3);
        return std::tuple{first, second, reducer.plan().buckets.front().slots.front().param};
    });
    for (const auto& [first, second, front] : outcomes) {
        CHECK(front == 0);
        CHECK(first.first == 2048);
        CHECK(std::isinf(first.second));
        CHECK(second.first == 2048);  // 2048 + 1, rounded to even: the 1 is still owed
        CHECK(second.second == 3);    // and not infinite for ever
    }
}

TEST_CASE("only 16-bit types compress", "[compress]") {
    CHECK_THROWS_WITH(ddp::compress(DType::F32), Contains("f16 or bf16") && Contains("f32"));
}

TEST_CASE("ranks with another rounding mode, or that flush subnormals, still get the same bits",
          "[reducer][compress]") {
    const auto exchange = GENERATE(0, 1, 2);
    CAPTURE(exchange);
    constexpr std::size_t kCount = 300;
    const auto results = run_ranks({.ranks_per_node = {3}}, [&](Context& context) {
        if (context.rank() == 1) std::fesetround(FE_UPWARD);
        ddp::ReducerOptions options{.average = exchange == 0 ? ddp::Average::Post : ddp::Average::Auto};
        if (exchange == 1) options.hook = ddp::compress(DType::F16);
        if (exchange == 2) options.hook = ddp::compress(DType::BF16, {.error_feedback = true});
        GradientReducer reducer(context.world(), {{"a", kCount}, {"wide", kCount, DType::F64}}, options);
        const std::span narrow = values(reducer, 0);
        const std::span wide(static_cast<double*>(reducer.grad(1).data), kCount);
        std::vector<double> seen;
        for (int step = 0; step < 3; ++step) {
            std::mt19937 random(1);
            reducer.begin_backward();
            for (std::size_t j = 0; j < kCount; ++j) {
                wide[j] = static_cast<double>(random() >> 8) / (1 << 24);
                narrow[j] = static_cast<float>(wide[j]);
            }
            reducer.mark_ready(0);
            reducer.mark_ready(1);
            reducer.finish_backward();
            seen.insert(seen.end(), narrow.begin(), narrow.end());
            seen.insert(seen.end(), wide.begin(), wide.end());
        }
        std::fesetround(FE_TONEAREST);
        return seen;
    });
    CHECK(results[1] == results[0]);
    CHECK(results[2] == results[0]);
}

TEST_CASE("a hook may serve another reducer after its first one has ended", "[reducer][compress]") {
    std::vector<std::shared_ptr<ddp::CommHook>> hooks;
    for (int rank = 0; rank < 2; ++rank) hooks.push_back(ddp::compress(DType::BF16, {.error_feedback = true}));
    for (const std::size_t count : {3u, 200u}) {  // in another world, whose group has the same name
        const auto averages = run_ranks({.ranks_per_node = {2}}, [&](Context& context) {
            const auto hook = hooks[static_cast<std::size_t>(context.rank())];
            std::vector<float> seen;
            for (const std::size_t more : {0u, 50u}) {
                GradientReducer reducer(context.world(), {{"a", count + more}}, {.hook = hook});
                run_step(reducer, 1, static_cast<float>(context.rank()));
                seen.push_back(values(reducer, 0).back());
            }
            return seen;
        });
        CHECK(averages == std::vector(2, std::vector<float>{0.5f, 0.5f}));
    }
}

namespace {

/// A hook as a user may write it: counts calls, then passes them on to another hook.
class CountingHook final : public ddp::CommHook {
public:
    CountingHook(std::shared_ptr<ddp::CommHook> inner, int& prepared, int& launched, int& completed)
        : inner_(std::move(inner)), prepared_(prepared), launched_(launched), completed_(completed) {}
    void prepare(ddp::ProcessGroup& group, const ddp::BucketPlan& plan) override {
        ++prepared_;
        inner_->prepare(group, plan);
    }
    ddp::Work launch(const ddp::GradBucket& bucket) override {
        ++launched_;
        return inner_->launch(bucket);
    }
    void complete(const ddp::GradBucket& bucket) override {
        ++completed_;
        inner_->complete(bucket);
    }

private:
    std::shared_ptr<ddp::CommHook> inner_;
    int& prepared_;
    int& launched_;
    int& completed_;
};

class FailingHook final : public ddp::CommHook {
public:
    explicit FailingHook(bool fails) : fails_(fails) {}
    void prepare(ddp::ProcessGroup& group, const ddp::BucketPlan&) override { group_ = &group; }
    ddp::Work launch(const ddp::GradBucket& bucket) override {
        if (fails_) throw std::runtime_error("no such codec");
        return group_->all_reduce(bucket.buffer, ddp::ReduceOp::Avg);
    }
    void complete(const ddp::GradBucket&) override {}

private:
    const bool fails_;
    ddp::ProcessGroup* group_ = nullptr;
};

/// Exchanges buckets over a group of its own, as a hook does that treats machines and their leaders differently.
class SplittingHook final : public ddp::CommHook {
public:
    void prepare(ddp::ProcessGroup& group, const ddp::BucketPlan&) override { part_ = group.split(0, 0, "part"); }
    ddp::Work launch(const ddp::GradBucket& bucket) override {
        return part_->all_reduce(bucket.buffer, ddp::ReduceOp::Avg);
    }
    void complete(const ddp::GradBucket&) override {}
    void release() override { part_.reset(); }

private:
    std::unique_ptr<ddp::ProcessGroup> part_;
};

}  // namespace

TEST_CASE("a hook's own group takes the calls of all threads that mark gradients", "[reducer][compress]") {
    const auto averages = run_ranks({.ranks_per_node = {2}, .timeout = std::chrono::minutes(5)}, [](Context& context) {
        constexpr std::size_t kLarge = 1 << 20;  // its bucket is in flight when the next one is launched
        GradientReducer reducer(context.world(), {{"below", kLarge}, {"top", kLarge}},
                                {.limits = {.bucket_cap_bytes = 1, .first_bucket_cap_bytes = 1},
                                 .hook = std::make_shared<SplittingHook>()});
        for (int step = 0; step < 5; ++step) {
            reducer.begin_backward();
            std::ranges::fill(values(reducer, 0), static_cast<float>(context.rank()));
            std::ranges::fill(values(reducer, 1), static_cast<float>(context.rank()));
            std::thread([&] { reducer.mark_ready(1); }).join();
            reducer.mark_ready(0);
            reducer.finish_backward();
        }
        return std::pair{values(reducer, 0)[7], values(reducer, 1)[7]};
    });
    CHECK(averages == std::vector(2, std::pair{0.5f, 0.5f}));
}

TEST_CASE("hooks can be put around hooks", "[reducer][compress]") {
    const auto outcomes = run_ranks({.ranks_per_node = {2}}, [](Context& context) {
        int prepared = 0;
        int launched = 0;
        int completed = 0;
        GradientReducer reducer(
            context.world(), {{"a", 1}, {"b", 1}},
            {.limits = {.bucket_cap_bytes = 1, .first_bucket_cap_bytes = 1},
             .hook = std::make_shared<CountingHook>(ddp::compress(DType::BF16), prepared, launched, completed)});
        for (int i = 0; i < 3; ++i) run_step(reducer, 2, static_cast<float>(context.rank()));
        return std::tuple{prepared, launched, completed, values(reducer, 0)[0]};
    });
    CHECK(outcomes == std::vector(2, std::tuple{1, 6, 6, 0.5f}));
}

TEST_CASE("a hook that fails ends the backward on all ranks, with its text", "[reducer][compress]") {
    const auto outcomes =
        ddp::testing::try_ranks({.ranks_per_node = {2}, .timeout = std::chrono::minutes(5)}, [](Context& context) {
            GradientReducer reducer(context.world(), {{"a", 1}},
                                    {.hook = std::make_shared<FailingHook>(context.rank() == 0)});
            run_step(reducer, 1, 1);
        });
    REQUIRE(outcomes[0].error);
    CHECK_THROWS_WITH(std::rethrow_exception(outcomes[0].error), "no such codec");
    CHECK_THAT(outcomes[1].text(), Contains("no such codec") && Contains("rank 0"));
}

TEST_CASE("one hook for two reducers is refused", "[compress]") {
    const auto outcomes = ddp::testing::try_ranks({.ranks_per_node = {2}}, [](ddp::Context& context) {
        const auto hook = ddp::compress(ddp::DType::BF16);
        const ddp::GradientReducer first(context.world(), {{"a", 1}}, {.hook = hook});
        const ddp::GradientReducer second(context.world(), {{"b", 1}}, {.hook = hook});
    });
    REQUIRE(outcomes[0].ddp_error());
    CHECK(outcomes[0].ddp_error()->code() == ddp::ErrorCode::InvalidArgument);
    CHECK_THAT(outcomes[0].text(), Catch::Contains("one hook"));
}
