// Training with each strategy: losses, norms and parameters equal the closed form, and have the same bits.
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "ddp/ddp.hpp"
#include "tests/catch.hpp"
#include "tests/unit/worker_lib/sharding/mlp.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"

using ddp::Context;
using ddp::Reduce;
using ddp::ShardedParameters;
using ddp::Sharding;
using ddp::ShardOptions;
using ddp::testing::kLayers;
using ddp::testing::LocalWorld;
using ddp::testing::Mlp;
using ddp::testing::Optimizer;
using ddp::testing::run_ranks;

namespace {

constexpr std::size_t kSteps = 5;
constexpr double kNoClip = std::numeric_limits<double>::infinity();

struct Run {
    std::vector<double> losses;  ///< of all ranks, before each update
    std::vector<double> norms;
    std::vector<std::vector<double>> params;  ///< at the end
};

struct Training {
    ShardOptions options = {};
    bool hybrid = false;
    bool adam = false;
    double clip = kNoClip;
    std::vector<Reduce> micro = {Reduce::All};  ///< the micro-batches of a step
};

template <typename T>
void step(Mlp<T>& net, ShardedParameters& model, Reduce reduce, double& loss, double share) {
    for (std::size_t u = 0; u < kLayers; ++u) net.forward(u, model.forward(u));
    loss += net.loss() * share;
    model.begin_backward(reduce);
    for (std::size_t u = kLayers; u-- > 0;) net.backward(u, model.backward(u), static_cast<T>(share));
    model.finish_backward();
}

template <typename T>
Run train(Context& context, const Training& training) {
    const auto rank = static_cast<std::size_t>(context.rank());
    const auto ranks = static_cast<std::size_t>(context.world_size());
    ShardOptions options = training.options;
    std::optional<ddp::Mesh> mesh;
    if (training.hybrid) {
        mesh.emplace(context,
                     std::initializer_list<ddp::MeshDimension>{{"replica", 2}, {"shard", context.world_size() / 2}});
        options.replicas = &(*mesh)["replica"];
    }
    ShardedParameters model(mesh ? (*mesh)["shard"] : context.world(), Mlp<T>::units(), options);
    model.fill(Mlp<T>::fill);
    Optimizer<T> optimizer(training.adam ? Optimizer<T>::Kind::kAdamW : Optimizer<T>::Kind::kSgd, model.size());
    Run run;
    const std::size_t micro = training.micro.size();
    for (std::size_t s = 0; s < kSteps; ++s) {
        double loss = 0;
        for (std::size_t k = 0; k < micro; ++k) {
            Mlp<T> net(rank * micro + k, ranks * micro);
            net.begin(s);
            step(net, model, training.micro[k], loss, 1.0 / static_cast<double>(micro));
        }
        context.world().all_reduce(loss, ddp::ReduceOp::Avg).wait();
        run.losses.push_back(loss);
        run.norms.push_back(model.clip(training.clip));
        optimizer.update(model);
    }
    model.changed();
    for (std::size_t p = 0; p < 2 * kLayers; ++p) {
        std::vector<T> values(Mlp<T>::units()[p / 2][p % 2].count);
        model.whole(p, values);
        run.params.emplace_back(values.begin(), values.end());
    }
    return run;
}

template <typename T>
std::vector<Run> train(const LocalWorld& world, const Training& training) {
    return run_ranks(world, [&](Context& context) { return train<T>(context, training); });
}

struct Expected {
    bool adam;
    double clip;
    std::vector<double> losses;
    std::vector<double> norms;
    double first;  ///< fc0.weight[0][0] at the end
    double last;   ///< fc2.bias[2]
};

// shared/reference: computed in f64 by one process, and by a second program.
const std::vector<Expected> kExpected{
    {false,
     kNoClip,
     {0.942610223599, 0.515510734116, 0.893347865658, 1.428122923429, 1.249276207911},
     {},
     0.322254057186,
     0.100830595236},
    {false,
     0.5,
     {0.942610223599, 0.389493044106, 0.693529860607, 0.683882840790, 0.641637877672},
     {3.103081253226, 2.061327159410, 2.575216459459, 2.321180461214, 2.419212438098},
     0.410360755604,
     -0.014548788665},
    {true,
     kNoClip,
     {0.942610223599, 0.360469773759, 0.740796735613, 0.890903852015, 0.732400276868},
     {},
     0.401022342342,
     -0.037478192335},
    {true,
     0.5,
     {0.942610223599, 0.360469771328, 0.739854233691, 0.895669416562, 0.742751720389},
     {3.103081253226, 1.904882069424, 2.388772256975, 2.432011908690, 2.373634852577},
     0.400910963808,
     -0.041130548753},
};

void check_close(const std::vector<double>& found, const std::vector<double>& expected, double margin) {
    for (std::size_t i = 0; i < expected.size(); ++i)
        CHECK(found.at(i) == Approx(expected[i]).epsilon(0).margin(margin));
}

void check_training(const LocalWorld& world, Training training) {
    const Expected& expected = GENERATE(from_range(kExpected));
    training.adam = expected.adam;
    training.clip = expected.clip;
    CAPTURE(expected.adam, expected.clip);
    for (const Run& run : train<double>(world, training)) {
        check_close(run.losses, expected.losses, 1e-11);
        check_close(run.norms, expected.norms, 1e-11);
        CHECK(run.params[0][0] == Approx(expected.first).epsilon(0).margin(1e-11));
        CHECK(run.params[5][2] == Approx(expected.last).epsilon(0).margin(1e-11));
    }
    for (const Run& run : train<float>(world, training)) {
        check_close(run.losses, expected.losses, 1e-6);
        check_close(run.norms, expected.norms, 4e-6);  // of values near 3: 16 units in the last place
    }
}

/// Checks steps of three micro-batches, of which the first two accumulate.
void check_micro_batches(const LocalWorld& world, Sharding sharding, bool hybrid) {
    const Reduce first = GENERATE(Reduce::Shard, Reduce::No);
    const Reduce second = GENERATE(Reduce::Shard, Reduce::No);
    const bool mapped = GENERATE(true, false);
    // To save time: with replicas each pair once, else the copied units without the equal pairs.
    if (hybrid ? mapped == (first == second) : !mapped && first == second) return;
    CAPTURE(static_cast<int>(sharding), static_cast<int>(first), static_cast<int>(second), mapped);
    check_training(
        world,
        {.options = {.sharding = sharding, .mapped = mapped}, .hybrid = hybrid, .micro = {first, second, Reduce::All}});
}

}  // namespace

TEST_CASE("A1: every strategy trains as the closed form", "[sharding]") {
    const auto sharding = GENERATE(Sharding::Full, Sharding::GradOp, Sharding::Optimizer, Sharding::None);
    const int ranks = GENERATE(1, 2, 3, 4);
    const bool mapped = GENERATE(true, false);
    CAPTURE(static_cast<int>(sharding), ranks, mapped);
    check_training({.ranks_per_node = {ranks}}, {.options = {.sharding = sharding, .mapped = mapped}});
}

TEST_CASE("A2: all strategies give the same bits, whatever is gathered ahead, if units are copied", "[sharding]") {
    const int ranks = GENERATE(2, 3, 4);
    const bool adam = GENERATE(false, true);
    const LocalWorld world{.ranks_per_node = {ranks}};
    const Run expected = train<float>(world, {.options = {.sharding = Sharding::None}, .adam = adam})[0];
    for (const Sharding sharding : {Sharding::Full, Sharding::GradOp, Sharding::Optimizer, Sharding::None}) {
        for (const int prefetch : {0, 1, 3}) {
            CAPTURE(static_cast<int>(sharding), prefetch, ranks);
            const ShardOptions options{.sharding = sharding, .prefetch = prefetch, .mapped = false};
            for (const Run& run : train<float>(world, {.options = options, .adam = adam})) {
                CHECK(run.losses == expected.losses);
                CHECK(run.params == expected.params);
            }
        }
    }
}

TEST_CASE("A3: over two nodes, whole or hybrid, strategies give the bits of None on the same world", "[sharding]") {
    const LocalWorld world{.ranks_per_node = {2, 2}};
    const Run expected = train<float>(world, {.options = {.sharding = Sharding::None}})[0];
    for (const Sharding sharding : {Sharding::Full, Sharding::GradOp, Sharding::Optimizer}) {
        for (const bool hybrid : {false, true}) {
            CAPTURE(static_cast<int>(sharding), hybrid);
            for (const Run& run : train<float>(world, {.options = {.sharding = sharding}, .hybrid = hybrid})) {
                CHECK(run.losses == expected.losses);
                CHECK(run.params == expected.params);
            }
        }
    }
    check_training(world, {.hybrid = true});
}

TEST_CASE("A5: micro-batches train as one large batch, with each way to accumulate", "[sharding]") {
    check_micro_batches({.ranks_per_node = {2}}, GENERATE(Sharding::Full, Sharding::Optimizer, Sharding::None), false);
}

TEST_CASE("A5: micro-batches train as one large batch, if there are replicas", "[sharding]") {
    check_micro_batches({.ranks_per_node = {2, 2}}, GENERATE(Sharding::Full, Sharding::Optimizer), true);
}

TEST_CASE("bf16 parameters and gradients: close to f32, and the same bits with every strategy", "[sharding]") {
    const bool reduced = GENERATE(false, true);
    const bool micro = GENERATE(false, true);
    const bool mapped = GENERATE(true, false);
    const LocalWorld world{.ranks_per_node = {3}};
    const auto run = [&](Sharding sharding) {
        Training training{.options = {.sharding = sharding, .param_dtype = ddp::DType::BF16, .mapped = mapped}};
        if (reduced) training.options.reduce_dtype = ddp::DType::BF16;
        if (micro) training.micro = {Reduce::Shard, Reduce::All};
        return train<float>(world, training);
    };
    const std::vector<Run> expected = run(Sharding::None);
    check_close(expected[0].losses, kExpected[0].losses, 5e-3);
    CHECK(std::abs(expected[0].losses[1] - kExpected[0].losses[1]) > 1e-6);  // parameters have been rounded
    for (const Sharding sharding : {Sharding::Full, Sharding::GradOp, Sharding::Optimizer}) {
        CAPTURE(static_cast<int>(sharding), reduced, micro);
        const std::vector<Run> found = run(sharding);
        for (const Run& one : found) {
            check_close(one.losses, kExpected[0].losses, 5e-3);
            if (micro) continue;  // None adds the micro-batches before the ranks
            CHECK(one.losses == expected[0].losses);
            CHECK(one.params == expected[0].params);
        }
    }
}

TEST_CASE("scopes may be moved, nested, repeated in a backward, and opened for an evaluation", "[sharding]") {
    const auto sharding = GENERATE(Sharding::Full, Sharding::Optimizer);
    const int prefetch = GENERATE(0, 1, 3);
    const bool mapped = GENERATE(true, false);
    const LocalWorld world{.ranks_per_node = {2}};
    const Run expected = train<float>(world, {.options = {.sharding = sharding}})[0];
    for (const auto& losses : run_ranks(world, [&](Context& context) {
             ShardedParameters first(context.world(), Mlp<float>::units(),
                                     {.sharding = sharding, .prefetch = prefetch, .mapped = mapped});
             first.fill(Mlp<float>::fill);
             Optimizer<float> optimizer(Optimizer<float>::Kind::kSgd, first.size());
             ShardedParameters model = std::move(first);
             std::vector<double> losses;
             for (std::size_t s = 0; s < kSteps; ++s) {
                 Mlp<float> net(static_cast<std::size_t>(context.rank()), 2), other(0, 12);
                 net.begin(s);
                 other.begin(s);
                 std::vector<ShardedParameters::Scope> all;  // all units are whole at once
                 for (std::size_t u = 0; u < kLayers; ++u) all.push_back(model.forward(u));
                 for (std::size_t u = 0; u < kLayers; ++u) net.forward(u, all[u]);
                 all.clear();
                 for (const std::size_t u : {0u, 1u, 2u}) other.forward(u, model.forward(u));  // an evaluation
                 double loss = net.loss();
                 model.begin_backward();
                 for (std::size_t u = kLayers; u-- > 0;) {
                     static_cast<void>(model.forward(u));  // as a recomputation opens it
                     net.backward(u, model.backward(u));
                 }
                 model.finish_backward();
                 context.world().all_reduce(loss, ddp::ReduceOp::Avg).wait();
                 losses.push_back(loss);
                 optimizer.update(model);
             }
             return losses;
         }))
        CHECK(losses == expected.losses);
}

TEST_CASE("sums of f16 gradients do not overflow where their average does not", "[sharding]") {
    const auto reduce = GENERATE(Reduce::Shard, Reduce::All);
    for (const bool right : run_ranks({.ranks_per_node = {4, 4}}, [&](Context& context) {
             ddp::Mesh mesh(context, {{"replica", 2}, {"shard", 4}});
             ShardedParameters model(mesh["shard"], {{{"w", 100}}},
                                     {.replicas = &mesh["replica"], .reduce_dtype = ddp::DType::F16});
             for (const Reduce one : {reduce, Reduce::All}) {
                 model.begin_backward(one);
                 {
                     const auto scope = model.backward(0);
                     for (ddp::Float16& value : scope.grad<ddp::Float16>(0)) value = ddp::Float16(20'000.0f);
                 }
                 model.finish_backward();
             }
             const float expected = reduce == Reduce::Shard ? 40'000.0f : 20'000.0f;
             bool all = true;
             for (const ddp::Shard& shard : model.shards()) {
                 for (const float value : shard.grad.as<float>()) all = all && value == expected;
             }
             return all;
         }))
        CHECK(right);
}
