#include <algorithm>
#include <cmath>
#include <random>
#include <thread>

#include "ddp/ddp.hpp"
#include "tests/catch.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"

using Catch::Contains;
using ddp::Context;
using ddp::DType;
using ddp::GradientReducer;
using ddp::ParamSpec;
using ddp::testing::LocalWorld;
using ddp::testing::run_ranks;
using ddp::testing::try_ranks;

namespace {

const ddp::ReducerOptions kSmallBuckets{.limits = {.bucket_cap_bytes = 512, .first_bucket_cap_bytes = 256}};

std::vector<ParamSpec> ten_params() {
    std::vector<ParamSpec> params;
    for (std::size_t i = 0; i < 10; ++i) params.push_back({"p" + std::to_string(i), 7 * i + 1});
    return params;
}

std::span<float> values(GradientReducer& reducer, std::size_t i) {
    const ddp::Buffer view = reducer.grad(i);
    return {static_cast<float*>(view.data), view.count};
}

/// Small integers: their sums and means over up to eight ranks are exact.
float gradient(std::size_t param, std::size_t element, int rank, int step) {
    return static_cast<float>(
        (param * 31 + element * 7 + static_cast<std::size_t>(rank) * 8 * 5 + static_cast<std::size_t>(step)) % 97);
}

void write_gradients(GradientReducer& reducer, std::size_t param, int rank, int step) {
    const auto view = values(reducer, param);
    for (std::size_t j = 0; j < view.size(); ++j) view[j] = gradient(param, j, rank, step);
}

/// Returns how many elements differ from the exact mean over all ranks.
int wrong_averages(GradientReducer& reducer, std::size_t params, int ranks, int step) {
    int wrong = 0;
    for (std::size_t i = 0; i < params; ++i) {
        const auto view = values(reducer, i);
        for (std::size_t j = 0; j < view.size(); ++j) {
            double sum = 0;
            for (int rank = 0; rank < ranks; ++rank) sum += gradient(i, j, rank, step);
            if (std::abs(view[j] - sum / ranks) > 1e-5 * 97) ++wrong;
        }
    }
    return wrong;
}

int train_in_order(Context& context, const std::vector<std::size_t>& order, int steps) {
    const auto params = ten_params();
    GradientReducer reducer(context.world(), params, kSmallBuckets);
    int wrong = 0;
    for (int step = 0; step < steps; ++step) {
        reducer.begin_backward();
        for (const std::size_t i : order) {
            write_gradients(reducer, i, context.rank(), step);
            reducer.mark_ready(i);
        }
        reducer.finish_backward();
        wrong += wrong_averages(reducer, params.size(), context.world_size(), step);
    }
    return wrong;
}

}  // namespace

TEST_CASE("gradients are averaged over the ranks, on one node and between nodes", "[reducer]") {
    const auto nodes = GENERATE(std::vector<int>{1}, std::vector<int>{2}, std::vector<int>{3}, std::vector<int>{2, 2});
    CAPTURE(nodes);
    const std::vector<std::size_t> backward_order{9, 8, 7, 6, 5, 4, 3, 2, 1, 0};
    const LocalWorld world{.ranks_per_node = nodes};
    const auto wrong = run_ranks(world, [&](Context& context) { return train_in_order(context, backward_order, 3); });
    CHECK(wrong == std::vector<int>(wrong.size(), 0));
}

TEST_CASE("each rank may finish its gradients in an order of its own", "[reducer]") {
    const LocalWorld world{.ranks_per_node = {4}};
    const auto wrong = run_ranks(world, [](Context& context) {
        std::vector<std::size_t> order{0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
        std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(context.rank())));
        return train_in_order(context, order, 5);
    });
    CHECK(wrong == std::vector<int>(4, 0));
}

TEST_CASE("several threads of a rank may mark gradients", "[reducer]") {
    const LocalWorld world{.ranks_per_node = {2}};
    const auto wrong = run_ranks(world, [](Context& context) {
        const auto params = ten_params();
        GradientReducer reducer(context.world(), params, kSmallBuckets);
        int mistakes = 0;
        for (int step = 0; step < 20; ++step) {
            reducer.begin_backward();
            const auto mark_every_second = [&](std::size_t first) {
                for (std::size_t i = first; i < params.size(); i += 2) {
                    write_gradients(reducer, i, context.rank(), step);
                    reducer.mark_ready(i);
                }
            };
            std::thread helper(mark_every_second, 0);
            mark_every_second(1);
            helper.join();
            reducer.finish_backward();
            mistakes += wrong_averages(reducer, params.size(), context.world_size(), step);
        }
        return mistakes;
    });
    CHECK(wrong == std::vector<int>(2, 0));
}

TEST_CASE("a bucket is reduced while backward still computes the rest", "[reducer]") {
    // Parameter 1 fills the first bucket. It is reduced although parameter 0 is not marked or called
    // finish_backward.
    const LocalWorld world{.ranks_per_node = {2}};
    const auto seen = run_ranks(world, [](Context& context) {
        GradientReducer reducer(context.world(), {{"below", 1000}, {"top", 1000}}, kSmallBuckets);
        reducer.begin_backward();
        std::ranges::fill(values(reducer, 1), context.rank() == 0 ? 1.0f : 3.0f);
        reducer.mark_ready(1);
        const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (reducer.stats().buckets_done == 0 && std::chrono::steady_clock::now() < give_up)
            std::this_thread::yield();
        const std::size_t early = reducer.stats().buckets_done;
        reducer.mark_unused(0);
        reducer.finish_backward();
        return std::tuple{early, reducer.stats().buckets_done, values(reducer, 1)[999]};
    });
    CHECK(seen == std::vector(2, std::tuple{std::size_t{1}, std::size_t{2}, 2.0f}));
}

TEST_CASE("a complete bucket waits for the ones before it", "[reducer]") {
    const auto done = run_ranks({}, [](Context& context) {
                          GradientReducer reducer(context.world(), {{"below", 1000}, {"top", 1000}}, kSmallBuckets);
                          reducer.begin_backward();
                          reducer.mark_ready(0);
                          const std::size_t launched_out_of_order = reducer.stats().buckets_done;
                          reducer.mark_ready(1);
                          reducer.finish_backward();
                          return std::pair{launched_out_of_order, reducer.stats().buckets_done};
                      }).front();
    CHECK(done == std::pair{std::size_t{0}, std::size_t{2}});
}

TEST_CASE("without sync nothing is sent, and what was accumulated is averaged later", "[reducer]") {
    const LocalWorld world{.ranks_per_node = {2}};
    const auto results = run_ranks(world, [](Context& context) {
        GradientReducer reducer(context.world(), {{"a", 1}, {"b", 1}, {"c", 1}});
        const auto mine = static_cast<float>(context.rank() + 1);
        reducer.begin_backward(false);
        for (std::size_t i = 0; i < 3; ++i) {
            values(reducer, i)[0] = mine;
            reducer.mark_ready(i);
        }
        reducer.finish_backward();
        const float local = values(reducer, 0)[0];
        const auto steps_before = reducer.stats().steps;

        reducer.begin_backward();
        values(reducer, 0)[0] += 10 * mine;
        reducer.mark_ready(0);
        reducer.mark_unused(1);  // takes no part in this one, but did in the one before
        values(reducer, 2)[0] = 0;
        reducer.mark_ready(2);
        reducer.finish_backward();
        const std::vector<float> averaged{values(reducer, 0)[0], values(reducer, 1)[0], values(reducer, 2)[0]};

        reducer.begin_backward();
        for (std::size_t i = 0; i < 3; ++i) reducer.mark_unused(i);
        reducer.finish_backward();
        return std::tuple{local, steps_before, averaged, values(reducer, 1)[0], reducer.stats().steps};
    });
    const auto averaged = std::vector<float>{16.5f, 1.5f, 0.0f};
    CHECK(results[0] == std::tuple{1.0f, std::uint64_t{0}, averaged, 0.0f, std::uint64_t{2}});
    CHECK(results[1] == std::tuple{2.0f, std::uint64_t{0}, averaged, 0.0f, std::uint64_t{2}});
}

TEST_CASE("all float types are reduced, each in buckets of its own", "[reducer]") {
    const LocalWorld world{.ranks_per_node = {3}};
    const auto right = run_ranks(world, [](Context& context) {
        GradientReducer reducer(context.world(), {{"f32", 33}, {"f64", 33, DType::F64}, {"bf16", 33, DType::BF16}});
        reducer.begin_backward();
        const ddp::Buffer half = reducer.grad(2);
        for (std::size_t j = 0; j < half.count; ++j) {  // 1, 2, 3: their bits in bf16
            static_cast<std::uint16_t*>(half.data)[j] =
                std::array<std::uint16_t, 3>{0x3f80, 0x4000, 0x4040}[static_cast<std::size_t>(context.rank())];
        }
        for (float& value : values(reducer, 0)) value = static_cast<float>(context.rank());
        const ddp::Buffer wide = reducer.grad(1);
        for (std::size_t j = 0; j < wide.count; ++j) static_cast<double*>(wide.data)[j] = 1e100 * context.rank();
        for (std::size_t i = 0; i < 3; ++i) reducer.mark_ready(i);
        reducer.finish_backward();
        return values(reducer, 0)[32] == 1.0f && static_cast<double*>(wide.data)[32] == Approx(1e100) &&
               static_cast<std::uint16_t*>(half.data)[32] == 0x4000;
    });
    CHECK(right == std::vector<bool>{true, true, true});
}

TEST_CASE("parameters start as root's", "[reducer]") {
    const LocalWorld world{.ranks_per_node = {2, 1}};
    const auto same = run_ranks(world, [](Context& context) {
        GradientReducer reducer(context.world(), {{"a", 5}});
        std::vector<float> large(9'000'000, static_cast<float>(context.rank()));  // more than one piece
        std::vector<double> small(3, context.rank());
        reducer.sync_parameters(std::vector<ddp::Buffer>{ddp::Buffer(large), ddp::Buffer(small)}, 1);
        return std::ranges::all_of(large, [](float v) { return v == 1; }) && small == std::vector<double>(3, 1.0);
    });
    CHECK(same == std::vector<bool>{true, true, true});
}

TEST_CASE("marking twice, outside a backward, or an unknown parameter is refused by name", "[reducer]") {
    const auto texts =
        run_ranks({}, [](Context& context) {
            GradientReducer reducer(context.world(), {{"fc.weight", 4}, {"fc.bias", 1}});
            std::vector<std::string> seen;
            const auto attempt = [&](auto call) {
                try {
                    call();
                    seen.push_back("accepted");
                } catch (const ddp::Error& error) {
                    seen.push_back(error.code() == ddp::ErrorCode::InvalidArgument ? error.what() : "another code");
                }
            };
            attempt([&] { reducer.mark_ready(0); });
            attempt([&] { reducer.finish_backward(); });
            reducer.begin_backward();
            attempt([&] { reducer.begin_backward(); });
            reducer.mark_ready(1);
            attempt([&] { reducer.mark_ready(1); });
            attempt([&] { reducer.mark_unused(1); });
            attempt([&] { reducer.mark_ready(2); });
            reducer.mark_ready(0);
            attempt([&] { reducer.finish_backward(); });
            return seen;
        }).front();
    REQUIRE(texts.size() == 7);
    CHECK_THAT(texts[0], Contains("'fc.weight'") && Contains("outside"));
    CHECK_THAT(texts[1], Contains("without begin_backward"));
    CHECK_THAT(texts[2], Contains("finish_backward"));
    CHECK_THAT(texts[3], Contains("'fc.bias'") && Contains("twice"));
    CHECK_THAT(texts[4], Contains("'fc.bias'") && Contains("twice"));
    CHECK_THAT(texts[5], Contains("no parameter 2") && Contains("2 were registered"));
    CHECK(texts[6] == "accepted");
}

TEST_CASE("every forgotten parameter is named, and the peers are not left waiting", "[reducer]") {
    const auto began = std::chrono::steady_clock::now();
    const LocalWorld world{.ranks_per_node = {2}, .timeout = std::chrono::minutes(5)};
    const auto outcomes = try_ranks(world, [](Context& context) {
        const auto params = ten_params();
        GradientReducer reducer(context.world(), params, kSmallBuckets);
        reducer.begin_backward();
        for (std::size_t i = 0; i < params.size(); ++i) {
            if (context.rank() == 0 || (i != 3 && i != 8)) reducer.mark_ready(i);
        }
        try {
            reducer.finish_backward();
        } catch (const ddp::Error&) {
            try {
                reducer.begin_backward();
            } catch (const ddp::Error& second) {
                if (second.code() != ddp::ErrorCode::Aborted) throw;
            }
            throw;
        }
    });
    CHECK_THAT(outcomes[1].text(), Contains("'p3', 'p8'") && Contains("mark_unused"));
    CHECK(outcomes[1].ddp_error()->code() == ddp::ErrorCode::InvalidArgument);
    REQUIRE(outcomes[0].ddp_error());
    CHECK(outcomes[0].ddp_error()->code() != ddp::ErrorCode::Timeout);
    CHECK(std::chrono::steady_clock::now() - began < std::chrono::minutes(1));
}

TEST_CASE("ranks with different models get an error that names parameter, difference and ranks", "[reducer]") {
    const LocalWorld world{.ranks_per_node = {4}};
    const auto outcomes = try_ranks(world, [](Context& context) {
        auto params = ten_params();
        if (context.rank() == 1) params[7].count = 2;
        if (context.rank() == 3) params[7].dtype = DType::F16;
        GradientReducer reducer(context.world(), params);
    });
    for (const auto& outcome : outcomes) {
        REQUIRE(outcome.ddp_error());
        CHECK(outcome.ddp_error()->code() == ddp::ErrorCode::Mismatch);
        CHECK(outcome.ddp_error()->culprits() == std::vector<int>{1, 3});  // which differ from each other, too
        CHECK_THAT(outcome.text(), Contains("rank 0 (host ") &&
                                       Contains(") has parameter 7 'p7' f32[50], but rank 1 (host ") &&
                                       Contains(") has parameter 7 'p7' f32[2]") && Contains("ranks 1 and 3"));
    }
}

TEST_CASE("one parameter more, or other bucket limits, are differences too", "[reducer]") {
    const LocalWorld world{.ranks_per_node = {2}};
    const auto more = try_ranks(world, [](Context& context) {
        auto params = ten_params();
        if (context.rank() == 1) params.push_back({"extra", 1});
        GradientReducer reducer(context.world(), params);
    });
    CHECK_THAT(more[0].text(), Contains(") has nothing more") && Contains("parameter 10 'extra' f32[1]"));
    CHECK(more[0].text() == more[1].text());
    const auto limits = try_ranks(world, [](Context& context) {
        GradientReducer reducer(context.world(), ten_params(),
                                {.limits = {.bucket_cap_bytes = context.rank() == 0 ? 1000u : 2000u}});
    });
    CHECK_THAT(limits[1].text(), Contains("1000 bytes") && Contains("2000 bytes"));
}

TEST_CASE("statistics count steps and bytes, and waiting is part of backward", "[reducer]") {
    const auto stats = run_ranks({.ranks_per_node = {2}}, [](Context& context) {
        GradientReducer reducer(context.world(), {{"a", 32}, {"b", 100}});
        for (int step = 0; step < 3; ++step) {
            reducer.begin_backward();
            reducer.mark_ready(1);
            reducer.mark_ready(0);
            reducer.finish_backward();
        }
        return reducer.stats();
    });
    for (const auto& s : stats) {
        CHECK(s.steps == 3);
        CHECK(s.bytes_reduced == 3 * (128 + 512));
        CHECK(s.exposed.count() > 0);
        CHECK(s.exposed <= s.backward);
    }
}
