// PowerSgdOptions::between_nodes: gradients are averaged inside each node, and factors are sent between nodes alone.
#include <chrono>
#include <cstring>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ddp/ddp.hpp"
#include "tests/catch.hpp"
#include "tests/unit/worker_lib/reducer/power_sgd_model.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"
#include "tests/unit/worker_lib/support/world_errors.hpp"

using Catch::Contains;
using ddp::Context;
using ddp::GradientReducer;
using ddp::ParamSpec;
using ddp::PowerSgd;
using ddp::PowerSgdOptions;
using ddp::testing::run_ranks;
using namespace ddp::testing::power_sgd;

namespace {

struct BetweenNodes {
    Values weight, bias;
    double residual = 0;  ///< norm, after settle()
    std::uint64_t bytes_sent = 0;
    bool operator==(const BetweenNodes&) const = default;
};

/// Two steps of the model with PowerSgdOptions::between_nodes, by rank.
std::vector<BetweenNodes> between_nodes(std::vector<int> ranks_per_node, int factor_rank, bool between = true) {
    return run_ranks({.ranks_per_node = std::move(ranks_per_node)}, [&](Context& context) {
        const auto hook = std::make_shared<PowerSgd>(
            kModel,
            PowerSgdOptions{.rank = factor_rank, .start_step = 0, .min_compression_rate = 1, .between_nodes = between});
        GradientReducer reducer(context.world(), kModel, {.hook = hook});
        for (std::size_t s = 0; s < 2; ++s) run_backward(reducer, s, context.rank());
        const std::uint64_t bytes_sent = hook->bytes_sent();
        hook->settle();
        return BetweenNodes{copy(reducer.grad<float>(0)), copy(reducer.grad<float>(1)),
                            norm(copy(hook->state().at(2).buffer.as<float>())), bytes_sent};
    });
}

/// The mean of the first `ranks` ranks' gradients in the second step.
double mean_gradient(std::size_t k, int ranks, double offset) {
    double sum = 0;
    for (int rank = 0; rank < ranks; ++rank) sum += gradient(k, 1, rank, offset);
    return sum / ranks;
}

}  // namespace

TEST_CASE("PowerSgd between nodes: the average is that of all ranks, also of nodes of different sizes", "[power_sgd]") {
    const auto ranks_per_node = GENERATE(std::vector{2, 2}, std::vector{3, 1}, std::vector{1, 1, 1}, std::vector{3});
    const int ranks = std::accumulate(ranks_per_node.begin(), ranks_per_node.end(), 0);
    CAPTURE(ranks_per_node);
    const auto found = between_nodes(ranks_per_node, 2);  // two columns hold any sum of these gradients
    for (std::size_t k = 0; k < 30; ++k) CHECK(found[0].weight[k] == Approx(mean_gradient(k, ranks, 0.2)).margin(2e-6));
    for (std::size_t k = 0; k < 3; ++k) CHECK(found[0].bias[k] == Approx(mean_gradient(k, ranks, 0.1)).margin(1e-6));
    for (const BetweenNodes& one : found) {
        CHECK(std::memcmp(one.weight.data(), found[0].weight.data(), 30 * sizeof(float)) == 0);
        CHECK(one.bias == found[0].bias);
    }
}

TEST_CASE("PowerSgd between nodes: only the first rank of a node sends factors, those of its node", "[power_sgd]") {
    const auto found = between_nodes({2, 2}, 1);
    const std::uint64_t factors = 2 * (6 + 3 + 5) * sizeof(float);  // the left one, the bias, the right one; two steps
    CHECK(found[0].bytes_sent == factors);
    CHECK(found[1].bytes_sent == 0);
    CHECK(found[2].bytes_sent == factors);
    CHECK(found[0].residual > 0.1);
    CHECK(found[0].residual == found[2].residual);  // settled
    CHECK(found[1].residual == 0);
    // One rank in each node: as without the option.
    CHECK(between_nodes({1, 1}, 1) == between_nodes({1, 1}, 1, false));
    // A single node: nothing is compressed.
    const auto single = between_nodes({2}, 1);
    CHECK(single[0].residual == 0);
    for (std::size_t k = 0; k < 30; ++k) CHECK(single[0].weight[k] == Approx(mean_gradient(k, 2, 0.2)).margin(1e-6));
}

TEST_CASE("PowerSgd between nodes: a plan that is rebuilt changes no average", "[power_sgd]") {
    const auto found = run_ranks({.ranks_per_node = {2, 1}}, [](Context& context) {
        std::vector<ParamSpec> params;
        for (int i = 0; i < 6; ++i) params.push_back({"p" + std::to_string(i), 30, ddp::DType::F32, 1, {6, 5}});
        const auto hook = std::make_shared<PowerSgd>(
            params, PowerSgdOptions{.rank = 2, .start_step = 0, .min_compression_rate = 1, .between_nodes = true});
        GradientReducer reducer(
            context.world(), params,
            {.limits = {.bucket_cap_bytes = 400, .first_bucket_cap_bytes = 100}, .rebuild = true, .hook = hook});
        const ddp::BucketPlan before = reducer.plan();
        for (std::size_t step = 0; step < 3; ++step) {
            reducer.begin_backward();
            for (std::size_t i = 0; i < params.size(); ++i) {  // the other way round than the first plan
                const std::span<float> values = reducer.grad<float>(i);
                for (std::size_t k = 0; k < values.size(); ++k) values[k] = gradient(k, 1, context.rank(), 0.2);
                reducer.mark_ready(i);
            }
            reducer.finish_backward();
        }
        return std::pair(!(reducer.plan() == before), copy(reducer.grad<float>(5)));
    });
    for (const auto& [rebuilt, values] : found) {
        CHECK(rebuilt);
        for (std::size_t k = 0; k < 30; ++k) CHECK(values[k] == Approx(mean_gradient(k, 3, 0.2)).margin(2e-6));
    }
}

TEST_CASE("PowerSgd between nodes: a rank that leaves ends the exchange of all nodes at once", "[power_sgd]") {
    const auto began = std::chrono::steady_clock::now();
    const auto texts = run_ranks({.ranks_per_node = {2, 2}}, [](Context& context) -> std::string {
        const auto hook = std::make_shared<PowerSgd>(
            kModel, PowerSgdOptions{.start_step = 0, .min_compression_rate = 1, .between_nodes = true});
        GradientReducer reducer(context.world(), kModel, {.hook = hook});
        run_backward(reducer, 0, context.rank());
        if (context.rank() == 3) return "it has left";
        try {
            run_backward(reducer, 1, context.rank());
        } catch (const ddp::Error& error) {
            return error.what();
        }
        return "no error";
    });
    CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds(10));
    for (std::size_t rank = 0; rank < 3; ++rank) CHECK_THAT(texts[rank], Contains("global rank 3"));
}

TEST_CASE("PowerSgd between nodes: a rank that fails outside of the exchange ends that of all nodes", "[power_sgd]") {
    const bool destroys = GENERATE(false, true);
    CAPTURE(destroys);
    ddp::testing::Gate gate(4);
    const auto texts = run_ranks({.ranks_per_node = {2, 2}}, [&](Context& context) -> std::string {
        const auto hook = std::make_shared<PowerSgd>(
            kModel, PowerSgdOptions{.start_step = 0, .min_compression_rate = 1, .between_nodes = true});
        auto reducer = std::make_unique<GradientReducer>(context.world(), kModel, ddp::ReducerOptions{.hook = hook});
        const bool fails = context.rank() == 3;
        if (destroys) {
            if (fails) {
                reducer->begin_backward();
                for (const std::size_t i : {1u, 0u}) reducer->mark_ready(i);
                reducer.reset();  // its thread waits for the others' gradients
            }
            gate.pass();
        }
        std::string text = "no error";
        try {
            if (!fails) {
                run_backward(*reducer, 0, context.rank());
            } else if (!destroys) {
                reducer->begin_backward();
                reducer->mark_ready(1);
                reducer->finish_backward();
            }
        } catch (const ddp::Error& error) {
            text = error.what();
        }
        if (!destroys) gate.pass();  // rank 3 has its reducer until the others have failed
        return text;
    });
    for (std::size_t rank = 0; rank < 3; ++rank)
        CHECK_THAT(texts[rank], Contains(destroys ? "was destroyed in the middle of a backward" : "not marked ready"));
}

TEST_CASE("PowerSgd between nodes: ranks of different steps are no average", "[power_sgd]") {
    const auto ranks_per_node = GENERATE(std::vector{2, 2}, std::vector{1, 1});
    const std::uint64_t start_step = GENERATE(0, 4);  // 4: rank 1 still sends whole gradients
    CAPTURE(ranks_per_node, start_step);
    for (const auto& error : ddp::testing::errors_of({.ranks_per_node = ranks_per_node}, [&](Context& context) {
             const auto hook = std::make_shared<PowerSgd>(
                 kModel, PowerSgdOptions{.start_step = start_step, .min_compression_rate = 1, .between_nodes = true});
             GradientReducer reducer(context.world(), kModel, {.hook = hook});
             hook->state().at(0).buffer.as<std::uint64_t>()[0] = context.rank() == 1 ? 3 : 7;
             run_backward(reducer, 0, context.rank());
         })) {
        REQUIRE(error);
        CHECK_THAT(error->what(), Contains("step 4") && Contains("step 8"));
    }
}
