// PowerSgd: factors, averages and residuals equal those of plain loops and of PyTorch's hook.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ddp/ddp.hpp"
#include "tests/catch.hpp"
#include "tests/unit/worker_lib/reducer/power_sgd_model.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"
#include "worker_lib/src/reducer/low_rank.hpp"
#include "worker_lib/src/reducer/low_rank_exchange.hpp"

using Catch::Contains;
using ddp::Context;
using ddp::GradientReducer;
using ddp::ParamSpec;
using ddp::PowerSgd;
using ddp::PowerSgdOptions;
using ddp::detail::LowRankExchange;
using ddp::detail::MatrixShape;
using ddp::testing::run_ranks;
using namespace ddp::testing::power_sgd;

namespace {

/// The hook of the vectors: its first right factor is cos(0.8 k), and it begins with the first step.
class VectorHook final : public ddp::CommHook {
public:
    explicit VectorHook(int rank) : exchange(kModel, {.rank = rank, .start_step = 0, .min_compression_rate = 1}) {
        Values right(static_cast<std::size_t>(5 * rank));
        for (std::size_t j = 0; j < 5; ++j) {
            for (std::size_t k = 0; k < static_cast<std::size_t>(rank); ++k)
                right[k * 5 + j] =
                    static_cast<float>(std::cos(0.8 * static_cast<double>(j * static_cast<std::size_t>(rank) + k)));
        }
        exchange.set_right(0, right);
    }
    void prepare(ddp::ProcessGroup& group, const ddp::BucketPlan& plan) override { exchange.prepare(group, plan); }
    ddp::Work launch(const ddp::GradBucket&) override { return {}; }
    void complete(const ddp::GradBucket& bucket) override { exchange.complete(bucket); }
    void release() override { exchange.release(); }

    LowRankExchange exchange;
};

struct Step {
    Values weight, bias, residual;
};

/// Three steps of the vectors' model, by rank.
std::vector<std::vector<Step>> three_steps(int ranks, int factor_rank) {
    return run_ranks({.ranks_per_node = {ranks}}, [&](Context& context) {
        const auto hook = std::make_shared<VectorHook>(factor_rank);
        GradientReducer reducer(context.world(), kModel, {.hook = hook});
        std::vector<Step> steps;
        for (std::size_t s = 0; s < 3; ++s) {
            run_backward(reducer, s, context.rank());
            const auto state = hook->exchange.state("");
            steps.push_back(
                {copy(reducer.grad<float>(0)), copy(reducer.grad<float>(1)), copy(state.at(2).buffer.as<float>())});
        }
        return steps;
    });
}

}  // namespace

// The expected values were computed in f64 by PyTorch's powerSGD_hook; the residuals of two ranks are our own rule's.
TEST_CASE("P1: averages equal those of PyTorch's hook", "[power_sgd]") {
    const auto one = three_steps(1, 1)[0];
    const std::vector<double> norms{3.029303006, 3.817592029, 5.224754168}, last{0.803612330, 1.138777479, 0.456941807};
    for (std::size_t s = 0; s < 3; ++s) {
        CHECK(norm(one[s].weight) == Approx(norms[s]).epsilon(1e-5));
        CHECK(one[s].weight[29] == Approx(last[s]).margin(1e-5));
        CHECK(one[s].bias[2] == gradient(2, s, 0, 0.1));
    }
    const auto two = three_steps(2, 1);
    const std::vector<double> norms2{2.178281423, 2.180030014, 3.047837458},
        first{0.612613161, 0.591546507, 0.185076944}, bias{0.536841, 0.634425, 0.251890};
    const std::vector<std::vector<double>> residuals{{2.535, 4.905, 6.326}, {2.557, 4.908, 5.852}};
    for (std::size_t s = 0; s < 3; ++s) {
        CAPTURE(s);
        CHECK(norm(two[0][s].weight) == Approx(norms2[s]).epsilon(1e-5));
        CHECK(two[0][s].weight[0] == Approx(first[s]).margin(1e-5));
        CHECK(two[0][0].bias[s] == Approx(bias[s]).margin(1e-6));
        for (std::size_t rank = 0; rank < 2; ++rank)
            CHECK(norm(two[rank][s].residual) == Approx(residuals[rank][s]).margin(6e-4));
    }
    // The gradients of both ranks together have rank 2, so two columns hold all of it.
    const auto exact = three_steps(2, 2);
    const std::vector<double> norms3{2.607457346, 2.587190312, 2.537966480};
    for (std::size_t s = 0; s < 3; ++s) {
        CHECK(norm(exact[0][s].weight) == Approx(norms3[s]).epsilon(1e-5));
        for (std::size_t k = 0; k < 30; ++k)
            CHECK(exact[0][s].weight[k] == Approx((gradient(k, s, 0, 0.2) + gradient(k, s, 1, 0.2)) / 2).margin(2e-6));
    }
}

TEST_CASE("P1: the factors of the first step are PyTorch's", "[power_sgd]") {
    const MatrixShape shape{6, 5, 1};
    Values matrix(30), values(30), right(5), left(6);
    for (std::size_t k = 0; k < 30; ++k) values[k] = gradient(k, 0, 0, 0.2);
    for (std::size_t j = 0; j < 5; ++j) right[j] = static_cast<float>(std::cos(0.8 * static_cast<double>(j)));
    ddp::detail::add_and_multiply(shape, values, right, matrix, left);
    CHECK(matrix == values);
    CHECK(ddp::detail::orthonormalise(shape, left));
    ddp::detail::multiply_transposed(shape, matrix, left, right);
    const std::vector<double> p{0.235433637, -0.577227406, 0.007920588, 0.573888153, -0.249867012, -0.468546319},
        q{1.601772426, 1.489045214, 0.249438270, -1.178938583, -1.715118221};
    for (std::size_t i = 0; i < 6; ++i) CHECK(left[i] == Approx(p[i]).margin(1e-6));
    for (std::size_t j = 0; j < 5; ++j) CHECK(right[j] == Approx(q[j]).margin(1e-6));

    Values columns{3, 4, 1, 2};  // [[3, 1], [4, 2]], one column after the other
    CHECK(ddp::detail::orthonormalise({2, 2, 2}, columns));
    const std::vector<double> orthonormal{0.6, 0.8, -0.8, 0.6};
    for (std::size_t i = 0; i < 4; ++i) CHECK(columns[i] == Approx(orthonormal[i]).margin(1e-6));
}

namespace {

/// The algorithm with one column, in f64 and plain loops, for all ranks together.
class PlainLoops {
public:
    explicit PlainLoops(int ranks) : sums_(static_cast<std::size_t>(ranks), std::vector<double>(30)) {
        for (std::size_t j = 0; j < 5; ++j) right_[j] = std::cos(0.8 * static_cast<double>(j));
    }

    /// Returns the average of the matrix.
    std::vector<double> step(std::size_t number) {
        std::vector<double> left(6), mean(5), average(30);
        for (std::size_t w = 0; w < sums_.size(); ++w) {
            for (std::size_t k = 0; k < 30; ++k) {
                sums_[w][k] += double{gradient(k, number, static_cast<int>(w), 0.2)};
                left[k / 5] += sums_[w][k] * right_[k % 5];
            }
        }
        double squares = 0;
        for (const double value : left) squares += value * value;
        for (double& value : left) value /= std::sqrt(squares);
        for (std::vector<double>& sum : sums_) {
            std::vector<double> own(5);
            for (std::size_t k = 0; k < 30; ++k) own[k % 5] += sum[k] * left[k / 5];
            for (std::size_t k = 0; k < 30; ++k) sum[k] -= left[k / 5] * own[k % 5];
            for (std::size_t j = 0; j < 5; ++j) mean[j] += own[j] / static_cast<double>(sums_.size());
        }
        for (std::size_t k = 0; k < 30; ++k) average[k] = left[k / 5] * mean[k % 5];
        right_ = mean;
        return average;
    }

private:
    std::vector<std::vector<double>> sums_;  ///< gradient and residual, by rank
    std::vector<double> right_ = std::vector<double>(5);
};

}  // namespace

TEST_CASE("P1: averages of three and four ranks equal those of plain loops", "[power_sgd]") {
    const int ranks = GENERATE(3, 4);
    const std::vector<Step> steps = three_steps(ranks, 1)[0];
    PlainLoops plain(ranks);
    for (std::size_t s = 0; s < 3; ++s) {
        CAPTURE(ranks, s);
        const std::vector<double> average = plain.step(s);
        for (std::size_t k = 0; k < 30; ++k) CHECK(double{steps[s].weight[k]} == Approx(average[k]).margin(1e-5));
    }
}

TEST_CASE("P1: all ranks have the same bits", "[power_sgd]") {
    const int ranks = GENERATE(3, 4);
    const auto found = three_steps(ranks, 2);
    for (const std::vector<Step>& steps : found) {
        for (std::size_t s = 0; s < 3; ++s) {
            CHECK(std::memcmp(steps[s].weight.data(), found[0][s].weight.data(), 30 * sizeof(float)) == 0);
            CHECK(steps[s].bias == found[0][s].bias);
        }
    }
}

TEST_CASE("which matrices are compressed", "[power_sgd]") {
    const std::vector<ParamSpec> params{{"a", 30, ddp::DType::F32, 1, {6, 5}},          // 11 * 2 < 30
                                        {"b", 16, ddp::DType::F32, 1, {4, 4}},          // 16 < 16 is false
                                        {"c", 3, ddp::DType::F32, 1, {3, 1}},           //
                                        {"d", 1000, ddp::DType::F32, 1, {10, 10, 10}},  // 10 x 100
                                        {"e", 1000},                                    //
                                        {"f", 0, ddp::DType::F32, 1, {0, 5}}};
    PowerSgd hook(params, {.rank = 1});
    std::vector<std::string> names;
    for (const auto& [name, buffer] : hook.state()) names.push_back(name);
    CHECK(names == std::vector<std::string>{"power_sgd.steps", "power_sgd.0.right", "power_sgd.0.residual",
                                            "power_sgd.3.right", "power_sgd.3.residual"});
    CHECK(hook.state("generator").at(1).name == "generator.0.right");
    CHECK(hook.state("").at(1).name == "0.right");
}

TEST_CASE("P2: with error feedback the averages of many steps sum up to the mean", "[power_sgd]") {
    constexpr std::size_t kSteps = 400;
    const auto sums = run_ranks({.ranks_per_node = {3}}, [](Context& context) {
        const auto hook = std::make_shared<PowerSgd>(
            kModel, PowerSgdOptions{.start_step = 0, .min_compression_rate = 1, .settle_every = 50});
        GradientReducer reducer(context.world(), kModel, {.hook = hook});
        std::vector<double> sum(30);
        for (std::size_t s = 0; s < kSteps; ++s) {
            run_backward(reducer, 0, context.rank());  // each rank another gradient, the same in all steps
            for (std::size_t k = 0; k < 30; ++k) sum[k] += double{reducer.grad<float>(0)[k]};
        }
        hook->settle();
        const auto residual = hook->state().at(2).buffer.as<float>();
        return std::pair(sum, norm(copy(residual)));
    });
    for (std::size_t k = 0; k < 30; ++k) {
        double mean = 0;
        for (int rank = 0; rank < 3; ++rank) mean += double{gradient(k, 0, rank, 0.2)} / 3;
        CHECK(sums[0].first[k] / kSteps == Approx(mean).margin(0.05));
    }
    CHECK(sums[0].second < 20);
    CHECK(sums[0].second == sums[1].second);  // settled
}

namespace {

/// The largest of all steps, on one rank.
struct Largest {
    double own = 0;    ///< norm of the rank's residual
    double mean = 0;   ///< norm of the mean of all ranks' residuals
    double above = 0;  ///< by how much the rank's is larger than that of the mean
};

/// Trains on two ranks with a gradient that never changes.
/// difference   of a rank's gradient from the mean; 0: all gradients are zero
std::vector<Largest> constant_gradients(std::size_t steps, float difference) {
    const std::vector<ParamSpec> params{{"weight", 120, ddp::DType::F32, 1, {12, 10}}};
    return run_ranks({.ranks_per_node = {2}}, [&](Context& context) {
        LowRankExchange exchange(params, {.start_step = 0});
        const ddp::BucketPlan plan = ddp::plan_buckets(params, {});
        exchange.prepare(context.world(), plan);
        Values values(120), mean(120);
        const ddp::GradBucket::Gradient gradient{0, values};
        const auto residual = exchange.state("").at(2).buffer.as<float>();
        Largest largest;
        for (std::size_t s = 0; s < steps; ++s) {
            for (std::size_t k = 0; k < values.size(); ++k) {
                const auto x = static_cast<double>(k);
                values[k] = difference * static_cast<float>(std::sin(0.9 * x + 0.01 * x * x) +
                                                            (context.rank() == 0 ? 1 : -1) * std::cos(1.3 * x));
            }
            exchange.complete({.last = true, .buffer = values, .gradients = {&gradient, 1}});
            std::ranges::copy(residual, mean.begin());
            context.world().all_reduce(mean, ddp::ReduceOp::Avg).wait();
            const double own = norm(copy(residual)), of_mean = norm(mean);
            largest = {std::max(largest.own, own), std::max(largest.mean, of_mean),
                       std::max(largest.above, own - of_mean)};
            if (!std::isfinite(own) || !std::isfinite(norm(values))) return Largest{NAN, NAN, NAN};
        }
        return largest;
    });
}

}  // namespace

TEST_CASE("P2: in 10,000 steps what a rank has not sent stays below 500 times its difference", "[power_sgd]") {
    double squares = 0;  // of what a rank's gradient differs from the mean
    for (std::size_t k = 0; k < 120; ++k) squares += std::pow(std::cos(1.3 * static_cast<double>(k)), 2);
    for (const Largest& largest : constant_gradients(10'000, 1)) {
        CHECK(largest.above <= 500 * std::sqrt(squares));
        CHECK(largest.above >= 50 * std::sqrt(squares));  // it grows until the ranks settle
        CHECK(largest.mean < 100);                        // what enters the averages does not grow
    }
    for (const Largest& largest : constant_gradients(1'000, 0)) CHECK(largest.own == 0);  // and is no NaN
}

TEST_CASE("P2: a matrix that was zero once is learnt afterwards", "[power_sgd]") {
    const auto sums = run_ranks({.ranks_per_node = {2}}, [](Context& context) {
        const auto hook =
            std::make_shared<PowerSgd>(kModel, PowerSgdOptions{.start_step = 0, .min_compression_rate = 1});
        GradientReducer reducer(context.world(), kModel, {.hook = hook});
        double sum = 0;
        for (int step = 0; step < 4; ++step) {
            reducer.begin_backward();
            for (const std::size_t i : {1u, 0u}) {
                for (float& value : reducer.grad<float>(i)) value = step == 0 ? 0.0f : 1.0f;
                reducer.mark_ready(i);
            }
            reducer.finish_backward();
            sum += double{reducer.grad<float>(0)[7]};
        }
        return sum;
    });
    CHECK(sums[0] == Approx(3).epsilon(1e-4));  // ones have rank 1
    CHECK(sums[0] == sums[1]);
}

TEST_CASE("parameters and options that differ from the reducer's or from other ranks' are refused", "[power_sgd]") {
    const auto texts = run_ranks({.ranks_per_node = {2}}, [](Context& context) {
        std::vector<std::string> found;
        const auto run = [&](const std::vector<ParamSpec>& params, const PowerSgdOptions& options) {
            try {
                GradientReducer reducer(context.world(), kModel, {.hook = std::make_shared<PowerSgd>(params, options)});
                run_backward(reducer, 0, context.rank());
                found.emplace_back("nothing");
            } catch (const ddp::Error& error) {
                found.emplace_back(error.what());
            }
        };
        run({{"bias", 3}, {"weight", 30, ddp::DType::F32, 1, {6, 5}}}, {.start_step = 0});
        run(kModel, {.seed = static_cast<std::uint64_t>(context.rank())});
        return found;
    });
    for (const auto& found : texts) {
        CHECK_THAT(found[0], Contains("has 3 elements, that of the reducer 30") ||
                                 Contains("has 30 elements, that of the reducer 3"));
        CHECK_THAT(found[1], Contains("the options or shapes of PowerSgd") && Contains("seed 1"));
    }
}

TEST_CASE("a gradient that is not finite is NaN on all ranks, and leaves nothing behind", "[power_sgd]") {
    const auto found = run_ranks({.ranks_per_node = {2}}, [](Context& context) {
        const auto hook =
            std::make_shared<PowerSgd>(kModel, PowerSgdOptions{.start_step = 0, .min_compression_rate = 1});
        GradientReducer reducer(context.world(), kModel, {.hook = hook});
        reducer.begin_backward();
        for (const std::size_t i : {1u, 0u}) {
            for (float& value : reducer.grad<float>(i)) value = 1;
            if (context.rank() == 1 && i == 0) reducer.grad<float>(0)[7] = std::numeric_limits<float>::infinity();
            reducer.mark_ready(i);
        }
        reducer.finish_backward();
        const bool was_nan = std::isnan(reducer.grad<float>(0)[0]);
        run_backward(reducer, 1, context.rank());
        return std::pair(was_nan, norm(copy(reducer.grad<float>(0))));
    });
    for (const auto& [was_nan, after] : found) {
        CHECK(was_nan);
        CHECK(std::isfinite(after));
    }
}

TEST_CASE("an exchange that fails after the left factors leaves the right ones unchanged", "[power_sgd]") {
    const auto unchanged = run_ranks({.ranks_per_node = {2}}, [](Context& context) -> bool {
        const auto group = context.world().split(0, context.rank(), "reducer");
        LowRankExchange exchange(kModel, {.start_step = 0, .min_compression_rate = 1});
        exchange.prepare(*group, ddp::plan_buckets(kModel, {}));
        Values values(30, static_cast<float>(context.rank() + 1));
        if (context.rank() == 1) {  // takes part in the first half only
            group->all_reduce(std::span(values).first(6), ddp::ReduceOp::Sum, {.label = "bucket 0 left"}).wait();
            group->abort("it ends here");
            return true;
        }
        const Values before = copy(exchange.state("").at(1).buffer.as<float>());
        const ddp::GradBucket::Gradient gradient{0, values};
        try {
            exchange.complete({.last = true, .buffer = values, .gradients = {&gradient, 1}});
        } catch (const ddp::Error&) {
            return copy(exchange.state("").at(1).buffer.as<float>()) == before;
        }
        return false;  // no error
    });
    CHECK(unchanged == std::vector{true, true});
}

TEST_CASE("prepare gives all ranks rank 0's factors and number of steps", "[power_sgd]") {
    const auto found = run_ranks({.ranks_per_node = {3}}, [](Context& context) {
        LowRankExchange exchange(kModel, {.start_step = 0, .min_compression_rate = 1});
        exchange.set_right(0, Values(5, static_cast<float>(context.rank() + 1)));
        exchange.state("").at(0).buffer.as<std::uint64_t>()[0] = 7 + static_cast<std::uint64_t>(context.rank());
        exchange.prepare(context.world(), ddp::plan_buckets(kModel, {}));
        const auto state = exchange.state("");
        return std::pair(state.at(0).buffer.as<std::uint64_t>()[0], copy(state.at(1).buffer.as<float>()));
    });
    for (const auto& [steps, right] : found) {
        CHECK(steps == 7);
        CHECK(right == Values(5, 1));
    }
}

TEST_CASE("before start_step gradients are sent whole, and then less is sent", "[power_sgd]") {
    const auto found = run_ranks({.ranks_per_node = {2}}, [](Context& context) {
        const std::vector<ParamSpec> params{{"weight", 10'000, ddp::DType::F32, 1, {100, 100}}};
        const auto hook = std::make_shared<PowerSgd>(params, PowerSgdOptions{.start_step = 1});
        GradientReducer reducer(context.world(), params, {.hook = hook});
        std::vector<std::uint64_t> sent;
        bool exact = true;
        for (int s = 0; s < 2; ++s) {
            reducer.begin_backward();
            for (float& value : reducer.grad<float>(0)) value = static_cast<float>(context.rank());
            reducer.mark_ready(0);
            reducer.finish_backward();
            exact = exact && (s > 0 || reducer.grad<float>(0)[5] == 0.5f);
            sent.push_back(hook->bytes_sent());
        }
        return std::pair(exact, sent);
    });
    for (const auto& [exact, sent] : found) {
        CHECK(exact);
        CHECK(sent[0] >= 40'000);
        CHECK(sent[1] - sent[0] == 2 * 100 * sizeof(float));
    }
}

TEST_CASE("options and shapes that cannot be are refused with what is wrong", "[power_sgd]") {
    CHECK_THROWS_WITH(PowerSgd({}, {.rank = 0}), Contains("the rank is 0"));
    CHECK_THROWS_WITH(PowerSgd({}, {.min_compression_rate = 0.5}), Contains("min_compression_rate is 0.5"));
    CHECK_THROWS_WITH(PowerSgd({{"w", 7, ddp::DType::F32, 1, {2, 3}}}),
                      Contains("'w' has the shape [2, 3], which is not of its 7"));
    CHECK_THROWS_WITH(PowerSgd(std::vector<ParamSpec>{}).settle(), Contains("it has no reducer"));
    const auto texts = run_ranks({}, [](Context& context) -> std::string {
        try {
            GradientReducer(context.world(), kModel, {.hook = std::make_shared<PowerSgd>(std::vector<ParamSpec>{})});
        } catch (const ddp::Error& error) {
            return error.what();
        }
        return "nothing";
    });
    CHECK_THAT(texts[0], Contains("its parameters are not those of the reducer"));
}
