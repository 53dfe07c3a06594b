#include <algorithm>
#include <atomic>
#include <numeric>
#include <thread>

#include "ddp/ddp.hpp"
#include "ddp/float16.hpp"
#include "tests/catch.hpp"
#include "tests/unit/worker_lib/reducer/reducer_world.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"

using Catch::Contains;
using ddp::Average;
using ddp::Context;
using ddp::DType;
using ddp::GradientReducer;
using ddp::ParamSpec;
using ddp::UnusedPolicy;
using ddp::testing::all_are;
using ddp::testing::kOneEach;
using ddp::testing::run_ranks;
using ddp::testing::run_step;
using ddp::testing::try_ranks;
using ddp::testing::values;

TEST_CASE("the sum may be divided before, in or after the reduction", "[reducer]") {
    const auto average = GENERATE(Average::Auto, Average::Pre, Average::Post, Average::InReduce);
    const auto nodes = GENERATE(std::vector<int>{4}, std::vector<int>{2, 2});
    CAPTURE(static_cast<int>(average), nodes);
    const auto right = run_ranks({.ranks_per_node = nodes}, [&](Context& context) {
        GradientReducer reducer(context.world(), {{"f32", 5}, {"bf16", 3, DType::BF16}}, {.average = average});
        reducer.begin_backward();
        for (float& value : values(reducer, 0)) value = static_cast<float>(context.rank());
        const ddp::Buffer narrow = reducer.grad(1);
        auto* bits = static_cast<std::uint16_t*>(narrow.data);
        std::fill_n(bits, narrow.count, ddp::BFloat16(static_cast<float>(2 * context.rank())).bits());
        reducer.mark_ready(1);
        reducer.mark_ready(0);
        reducer.finish_backward();
        return all_are(values(reducer, 0), 1.5f) && ddp::BFloat16::from_bits(bits[2]) == 3.0f;
    });
    CHECK(right == std::vector<bool>(4, true));
}

TEST_CASE("a gradient that layers share is complete at its last use", "[reducer]") {
    const auto results = run_ranks({.ranks_per_node = {2}}, [](Context& context) {
        GradientReducer reducer(context.world(), {{"tied", 2, DType::F32, 2}, {"own", 1}}, {.limits = kOneEach});
        reducer.begin_backward();
        reducer.mark_ready(1);
        values(reducer, 0)[0] = 1;
        reducer.mark_ready(0);
        std::string too_early;
        try {
            reducer.mark_unused(0);
        } catch (const ddp::Error& error) {
            too_early = error.what();
        }
        values(reducer, 0)[0] += static_cast<float>(context.rank());
        reducer.mark_ready(0);
        std::string too_often;
        try {
            reducer.mark_ready(0);
        } catch (const ddp::Error& error) {
            too_often = error.what();
        }
        reducer.finish_backward();
        return std::tuple{values(reducer, 0)[0], too_early, too_often};
    });
    for (const auto& [average, too_early, too_often] : results) {
        CHECK(average == 1.5f);
        CHECK_THAT(too_early, Contains("'tied'") && Contains("marked unused after it had been marked ready"));
        CHECK_THAT(too_often, Contains("'tied'") && Contains("more than 2 times"));
    }
}

TEST_CASE("a missing use is reported like a missing mark", "[reducer]") {
    const auto outcomes = try_ranks({}, [](Context& context) {
        GradientReducer reducer(context.world(), {{"tied", 2, DType::F32, 3}});
        reducer.begin_backward();
        reducer.mark_ready(0);
        reducer.finish_backward();
    });
    CHECK_THAT(outcomes[0].text(), Contains("not marked ready: 'tied'"));
    const auto senseless = try_ranks({}, [](Context& context) {
        GradientReducer(context.world(), {{"tied", 2, DType::F32, 0}});
    });
    CHECK_THAT(senseless[0].text(), Contains("'tied'") && Contains("uses is 0"));
}

TEST_CASE("with UnusedPolicy::Zero gradients that are not marked count as zero", "[reducer]") {
    const auto averages = run_ranks({.ranks_per_node = {2}}, [](Context& context) {
        GradientReducer reducer(context.world(), {{"a", 1}, {"b", 1}, {"c", 1, DType::F32, 2}},
                                {.limits = kOneEach, .unused = UnusedPolicy::Zero});
        for (std::size_t i = 0; i < 3; ++i) values(reducer, i)[0] = 77;  // from a step before
        reducer.begin_backward();
        if (context.rank() == 0) {
            values(reducer, 1)[0] = 8;
            reducer.mark_ready(1);
            values(reducer, 2)[0] = 4;
            reducer.mark_ready(2);  // one of its two uses
        }
        reducer.finish_backward();
        return std::vector<float>{values(reducer, 0)[0], values(reducer, 1)[0], values(reducer, 2)[0]};
    });
    CHECK(averages == std::vector(2, std::vector<float>{0, 4, 2}));
}

TEST_CASE("find_unused reports the gradients that no rank has used", "[reducer]") {
    const std::size_t params = 130;  // more than two words of bits
    const auto steps = run_ranks({.ranks_per_node = {2, 1}}, [&](Context& context) {
        std::vector<ParamSpec> specs(params, ParamSpec{"p", 1});
        GradientReducer reducer(context.world(), specs, {.unused = UnusedPolicy::Zero, .find_unused = true});
        const auto rank = static_cast<std::size_t>(context.rank());
        reducer.begin_backward(false);
        if (rank == 2) reducer.mark_ready(100);  // used in a backward without sync: still used
        reducer.finish_backward();
        reducer.begin_backward();
        reducer.mark_ready(rank);
        reducer.mark_ready(params - 1);
        const auto first = reducer.finish_backward();
        reducer.begin_backward();
        const auto second = reducer.finish_backward();
        return std::pair{first, second};
    });
    std::vector<bool> expected(params, false);
    for (const std::size_t i : {0u, 1u, 2u, 100u, 129u}) expected[i] = true;
    for (const auto& [first, second] : steps) {
        CHECK(first.synchronised);
        CHECK(first.used == expected);
        CHECK(second.used == std::vector<bool>(params, false));
    }
}

TEST_CASE("bound gradients are copied in when they are ready, and their averages back", "[reducer]") {
    const auto right = run_ranks({.ranks_per_node = {2}}, [](Context& context) {
        const auto mine = static_cast<float>(context.rank());
        std::vector<float> outside(100);
        std::vector<float> replaced(100, -1.0f);
        GradientReducer reducer(context.world(), {{"view", 10}, {"bound", 100}, {"unused", 100}});
        reducer.bind(1, replaced);
        reducer.bind(1, outside);
        std::vector<float> unused(100, 5.0f);
        reducer.bind(2, unused);

        // Without sync the caller adds up where its gradients are; nothing is copied.
        for (const bool sync : {false, true}) {
            reducer.begin_backward(sync);
            for (float& value : outside) value += mine + 1;
            reducer.mark_ready(1);
            reducer.mark_unused(2);
            for (float& value : values(reducer, 0)) value = mine;
            reducer.mark_ready(0);
            reducer.finish_backward();
        }
        const bool accumulated = all_are(outside, 3) && all_are(unused, 0) && all_are(values(reducer, 0), 0.5f);

        reducer.begin_backward();
        std::ranges::fill(values(reducer, 1), 2 * mine);  // where the bound gradient is
        for (std::size_t i = 0; i < 2; ++i) reducer.mark_ready(i);
        reducer.mark_unused(2);
        reducer.finish_backward();
        return accumulated && all_are(outside, 1) && all_are(unused, 0) && all_are(replaced, -1);
    });
    CHECK(right == std::vector<bool>{true, true});
}

TEST_CASE("only memory of the parameter's size and type can be bound, and not in a backward", "[reducer]") {
    const auto texts = run_ranks({}, [](Context& context) {
                           GradientReducer reducer(context.world(), {{"w", 4}});
                           std::vector<float> right(4);
                           std::vector<float> short_one(3);
                           std::vector<double> wide(4);
                           std::vector<std::string> seen;
                           const auto attempt = [&](ddp::Buffer buffer) {
                               try {
                                   reducer.bind(0, buffer);
                                   seen.emplace_back("accepted");
                               } catch (const ddp::Error& error) {
                                   seen.emplace_back(error.what());
                               }
                           };
                           attempt(ddp::Buffer(short_one));
                           attempt(ddp::Buffer(wide));
                           attempt({nullptr, 4, DType::F32});
                           attempt(ddp::Buffer(right));
                           reducer.begin_backward();
                           attempt(ddp::Buffer(right));
                           reducer.mark_ready(0);
                           reducer.finish_backward();
                           return seen;
                       }).front();
    CHECK_THAT(texts[0], Contains("'w' needs f32[4]") && Contains("f32[3]"));
    CHECK_THAT(texts[1], Contains("f64[4]"));
    CHECK_THAT(texts[2], Contains("no memory"));
    CHECK(texts[3] == "accepted");
    CHECK_THAT(texts[4], Contains("in the middle of a backward"));
}

TEST_CASE("gradients accumulated without sync are not lost by binding another buffer", "[reducer]") {
    const auto outcomes = try_ranks({}, [](Context& context) {
        GradientReducer reducer(context.world(), {{"w", 4}});
        std::vector<float> other(4);
        reducer.begin_backward(false);
        reducer.mark_ready(0);
        reducer.finish_backward();
        reducer.bind(0, other);
    });
    CHECK_THAT(outcomes[0].text(), Contains("'w'") && Contains("without sync"));
}

TEST_CASE("the time of a callback does not count as waiting for communication", "[reducer]") {
    const auto [exposed, backward, working] =
        run_ranks({}, [](Context& context) {
            std::chrono::nanoseconds taken{};
            const auto work = [&](const ddp::GradBucket&) {
                const auto began = std::chrono::steady_clock::now();
                while (std::chrono::steady_clock::now() - began < std::chrono::milliseconds(50)) {
                }
                taken += std::chrono::steady_clock::now() - began;
            };
            GradientReducer reducer(context.world(), {{"a", 1}, {"b", 1}},
                                    {.limits = kOneEach, .on_bucket_done = work});
            for (int step = 0; step < 3; ++step) run_step(reducer, 2, 1);
            return std::tuple{reducer.stats().exposed, reducer.stats().backward, taken};
        }).front();
    CHECK(exposed < working / 2);
    CHECK(backward > working);
}

TEST_CASE("gradients are spans of their type, and can be set to zero between backwards", "[reducer]") {
    const auto outcomes = try_ranks({.ranks_per_node = {2}}, [](Context& context) {
        GradientReducer reducer(context.world(), {{"f32", 3}, {"f64", 2, DType::F64}});
        std::vector<double> bound{5, 5};
        reducer.bind(1, bound);
        const std::span<float> view = reducer.grad<float>(0);
        if (view.data() != reducer.grad(0).data || view.size() != 3) throw std::runtime_error("another span");
        if (reducer.grad<double>(1).data() != bound.data()) throw std::runtime_error("not the bound buffer");
        std::ranges::fill(view, 1.0f);
        reducer.zero_grads();
        if (!all_are(view, 0.0f) || bound != std::vector<double>(2, 0)) throw std::runtime_error("not zero");
        (void)reducer.grad<double>(0);
    });
    for (const auto& outcome : outcomes) {
        CHECK(outcome.text() == "grad: parameter 'f32' is f32, not f64. Call grad<T> with its type");
    }
}

TEST_CASE("gradients are not set to zero in a backward", "[reducer]") {
    const auto outcomes = try_ranks({.ranks_per_node = {1}}, [](Context& context) {
        GradientReducer reducer(context.world(), {{"a", 1}});
        reducer.begin_backward();
        reducer.zero_grads();
    });
    CHECK_THAT(outcomes.front().text(), Contains("zero_grads: a backward is going on"));
}

TEST_CASE("no_sync is a backward without sync while it lives", "[reducer]") {
    const auto seen = run_ranks({.ranks_per_node = {2}}, [](Context& context) {
        GradientReducer reducer(context.world(), {{"a", 1}});
        std::vector<bool> synchronised;
        {
            const auto outer = reducer.no_sync();
            {
                const auto inner = reducer.no_sync();
                synchronised.push_back(run_step(reducer, 1, 1).synchronised);
            }
            synchronised.push_back(run_step(reducer, 1, 1).synchronised);
        }
        synchronised.push_back(run_step(reducer, 1, 1).synchronised);
        return synchronised;
    });
    CHECK(seen == std::vector(2, std::vector<bool>{false, false, true}));
}

TEST_CASE("check_every_step finds a rank that does not synchronise", "[reducer]") {
    const auto outcomes = try_ranks({.ranks_per_node = {3}}, [](Context& context) {
        GradientReducer reducer(context.world(), {{"a", 1}}, {.check_every_step = true});
        run_step(reducer, 1, 1);
        reducer.begin_backward(context.rank() != 2);
    });
    for (const auto& outcome : outcomes) {
        REQUIRE(outcome.ddp_error());
        CHECK(outcome.ddp_error()->code() == ddp::ErrorCode::Mismatch);
        CHECK(outcome.ddp_error()->culprits() == std::vector<int>{2});
        CHECK_THAT(outcome.text(), Contains("after 1 synchronised") &&
                                       Contains(") has one with sync, but rank 2 (host ") &&
                                       Contains(") has one without sync") && Contains("no_sync()"));
    }
}

TEST_CASE("verify_parameters names the first parameter that differs, and the ranks", "[reducer]") {
    const auto outcomes = try_ranks({.ranks_per_node = {2, 2}}, [](Context& context) {
        GradientReducer reducer(context.world(), {{"same", 3}, {"other", 3}});
        std::vector<float> same(3, 1.0f);
        std::vector<double> other(3, 2.0);  // the gradient is f32
        const std::vector<ddp::Buffer> params{ddp::Buffer(same), ddp::Buffer(other)};
        reducer.verify_parameters(params);
        if (context.rank() == 3) other[2] = std::nextafter(2.0, 3.0);
        reducer.verify_parameters(params);
    });
    for (const auto& outcome : outcomes) {
        REQUIRE(outcome.ddp_error());
        CHECK(outcome.ddp_error()->culprits() == std::vector<int>{3});
        CHECK_THAT(outcome.text(),
                   Contains("has parameter 1 'other' f64[3] with 2 at index 2 (") &&
                       Contains("has parameter 1 'other' f64[3] with 2.0000000000000004 at index 2 (") &&
                       Contains("sync_parameters"));
    }
}

TEST_CASE("on_bucket_done sees averages, in launch order, while backward goes on", "[reducer]") {
    const auto outcomes = run_ranks({.ranks_per_node = {2}}, [](Context& context) {
        std::vector<std::size_t> order;
        std::vector<float> weights(3, 10.0f);
        std::atomic<int> updated{0};
        bool last_is_last = true;
        const auto update = [&](const ddp::GradBucket& bucket) {
            order.push_back(bucket.index);
            last_is_last = last_is_last && bucket.last == (bucket.index == 2);
            for (const auto& gradient : bucket.gradients)
                weights[gradient.param] -= static_cast<const float*>(gradient.values.data)[0];
            ++updated;
        };
        GradientReducer reducer(context.world(), {{"a", 1}, {"b", 1}, {"c", 1}},
                                {.limits = kOneEach, .on_bucket_done = update});
        reducer.begin_backward();
        const auto mark = [&](std::size_t i) {
            values(reducer, i)[0] = static_cast<float>(i) + static_cast<float>(2 * context.rank());
            reducer.mark_ready(i);
        };
        mark(2);
        mark(1);
        const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (updated < 2 && std::chrono::steady_clock::now() < give_up) std::this_thread::yield();
        const int early = updated;
        mark(0);
        reducer.finish_backward();
        return std::tuple{early, order, weights, last_is_last};
    });
    const auto expected = std::tuple{2, std::vector<std::size_t>{0, 1, 2}, std::vector<float>{9, 8, 7}, true};
    CHECK(outcomes == std::vector(2, expected));
}
