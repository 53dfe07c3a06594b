// The optimisers against training in closed form, with the numbers of the strategies' tests.

#include <string>
#include <vector>

#include "ddp/ddp.hpp"
#include "tests/catch.hpp"
#include "tests/unit/worker_lib/sharding/mlp.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"
#include "worker_lib/examples/train/support/optimizer.hpp"

using ddp::testing::kLayers;
using ddp::testing::Mlp;
using train::Optimizer;

namespace {

/// Trains five steps on one rank. Returns the loss before each, then the first and the last parameter.
template <typename T>
std::vector<double> train_in_closed_form(ddp::Context& context, Optimizer optimizer, T rate) {
    ddp::ShardedParameters model(context.world(), Mlp<T>::units());
    model.fill(Mlp<T>::fill);
    std::vector<T> first(model.size()), second(model.size());
    Mlp<T> net(0, 1);
    std::vector<double> found;
    for (std::size_t step = 0; step < 5; ++step) {
        net.begin(step);
        for (std::size_t u = 0; u < kLayers; ++u) net.forward(u, model.forward(u));
        found.push_back(net.loss());
        model.begin_backward();
        for (std::size_t u = kLayers; u-- > 0;) net.backward(u, model.backward(u));
        model.finish_backward();
        std::size_t k = 0;
        for (const ddp::Shard& shard : model.shards()) {
            const std::size_t count = shard.values.count;
            train::optimizer_step<T>(optimizer, shard.values.as<T>(), std::span(first).subspan(k, count),
                                     std::span(second).subspan(k, count), shard.grad.as<T>(), rate, step + 1);
            k += count;
        }
    }
    found.push_back(double{model.shards().front().values.template as<T>().front()});
    found.push_back(double{model.shards().back().values.template as<T>().back()});
    return found;
}

void check_close(const std::vector<double>& found, const std::vector<double>& expected, double margin) {
    for (std::size_t i = 0; i < expected.size(); ++i)
        CHECK(found.at(i) == Approx(expected[i]).epsilon(0).margin(margin));
}

}  // namespace

TEST_CASE("sgd and adamw train as the closed form", "[train]") {
    struct Case {
        Optimizer optimizer;
        double rate;
        std::vector<double> expected;
    };
    const auto& [optimizer, rate, expected] =
        GENERATE(values<Case>({{Optimizer::kSgd,
                                0.1,
                                {0.942610223599, 0.515510734116, 0.893347865658, 1.428122923429, 1.249276207911,
                                 0.322254057186, 0.100830595236}},
                               {Optimizer::kAdamW,
                                0.01,
                                {0.942610223599, 0.360469773759, 0.740796735613, 0.890903852015, 0.732400276868,
                                 0.401022342342, -0.037478192335}}}));
    const auto in_f64 = ddp::testing::run_ranks({}, [optimizer, rate](ddp::Context& context) {
        return train_in_closed_form<double>(context, optimizer, rate);
    });
    const auto in_f32 = ddp::testing::run_ranks({}, [optimizer, rate](ddp::Context& context) {
        return train_in_closed_form<float>(context, optimizer, static_cast<float>(rate));
    });
    check_close(in_f64.front(), expected, 1e-11);
    check_close(in_f32.front(), expected, 2e-6);
}

TEST_CASE("momentum adds up", "[train]") {
    std::vector<float> parameter{1.0f}, velocity{0.0f};
    const std::vector<float> gradient{2.0f};
    train::sgd_step<float>(parameter, velocity, gradient, 0.25f);
    CHECK(velocity[0] == 2);
    CHECK(parameter[0] == 0.5f);
    train::sgd_step<float>(parameter, velocity, gradient, 0.25f);
    CHECK(velocity[0] == Approx(3.8f));
    CHECK(parameter[0] == Approx(-0.45f));
}
