// The factor of the loss: when it changes, and that all ranks leave out the same steps.
#include <cmath>
#include <limits>
#include <vector>

#include "ddp/ddp.hpp"
#include "tests/catch.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"

using ddp::LossScaler;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

TEST_CASE("the scale is halved by an overflow, and doubled by 2000 good steps in a row", "[sharding]") {
    LossScaler scaler;
    CHECK(scaler.scale() == 65536);
    CHECK(scaler.step(3.0) == 1.0 / 65536);
    for (int step = 1; step < 1999; ++step) (void)scaler.step(1.0);
    CHECK(!scaler.step(kInfinity));  // it would have been the 2000th
    CHECK(scaler.scale() == 32768);
    CHECK(!scaler.step(std::nan("")));
    CHECK(scaler.scale() == 16384);
    for (int step = 0; step < 1999; ++step) (void)scaler.step(0.0);
    CHECK(scaler.scale() == 16384);
    CHECK(scaler.step(1.0) == 1.0 / 16384);  // of this step; the next one has the new scale
    CHECK(scaler.scale() == 32768);
    for (int step = 0; step < 100; ++step) (void)scaler.step(kInfinity);
    CHECK(scaler.scale() == 1);
}

TEST_CASE("a scaler goes on from its state", "[sharding]") {
    const ddp::LossScalerOptions options{.scale = 8, .growth = 4, .backoff = 0.25, .growth_interval = 3};
    LossScaler first(options);
    (void)first.step(kInfinity);
    (void)first.step(1.0);
    (void)first.step(1.0);
    LossScaler second(options);
    const auto from = first.state(), to = second.state();
    REQUIRE(from.size() == 1);
    CHECK(from[0].name == "loss_scaler");
    CHECK(ddp::concat(from, to).size() == 2);  // as with ShardedParameters::state()
    std::ranges::copy(from[0].part.as<double>(), to[0].part.as<double>().begin());
    CHECK(second.scale() == 2);
    CHECK(second.step(1.0) == 0.5);
    CHECK(second.scale() == 8);
}

TEST_CASE("the scale stays finite", "[sharding]") {
    LossScaler scaler({.scale = 8, .growth = 1e300, .growth_interval = 1});
    for (int step = 0; step < 3; ++step) (void)scaler.step(1.0);
    CHECK(scaler.scale() == 8e300);
}

TEST_CASE("options of a LossScaler without sense are refused", "[sharding]") {
    CHECK_THROWS_WITH(LossScaler({.scale = 0}), "LossScalerOptions::scale is 0: expected a positive number");
    CHECK_THROWS_WITH(LossScaler({.scale = kInfinity}), Catch::Contains("scale is inf"));
    CHECK_THROWS_WITH(LossScaler({.growth = 0.5}), Catch::Contains("growth is 0.5: expected at least 1"));
    CHECK_THROWS_WITH(LossScaler({.backoff = 1}), Catch::Contains("backoff is 1: expected a number between 0 and 1"));
    CHECK_THROWS_WITH(LossScaler({.growth_interval = 0}), Catch::Contains("growth_interval is 0"));
}

TEST_CASE("one rank's overflow in f16 makes all ranks leave out the step, and small gradients survive", "[sharding]") {
    struct Seen {
        std::vector<bool> updated;
        double scale = 0, gradient = 0;
        bool operator==(const Seen&) const = default;
    };
    const auto seen = ddp::testing::run_ranks({.ranks_per_node = {3}}, [](ddp::Context& context) {
        ddp::ShardedParameters model(context.world(), {{{"w", 100}}},
                                     {.param_dtype = ddp::DType::F16, .reduce_dtype = ddp::DType::F16});
        LossScaler scaler;
        Seen own;
        for (int step = 0; step < 3; ++step) {
            { const auto unit = model.forward(0); }
            model.begin_backward();
            {
                // The gradient of the loss is 2^-26, which f16 does not have, and in step 1 too large on one rank.
                const double gradient = step == 1 && context.rank() == 2 ? 2.0 : 0x1p-26;
                const auto unit = model.backward(0);
                for (ddp::Float16& value : unit.grad<ddp::Float16>(0))
                    value = ddp::Float16(static_cast<float>(gradient * scaler.scale()));
            }
            model.finish_backward();
            const auto factor = scaler.step(model.clip(kInfinity));
            own.updated.push_back(factor.has_value());
            if (!factor) continue;
            for (const ddp::Shard& shard : model.shards()) own.gradient = double{shard.grad.as<float>()[0]} * *factor;
        }
        own.scale = scaler.scale();
        if (model.shards().empty()) own.gradient = 0x1p-26;  // this rank's part is padding
        return own;
    });
    for (const Seen& rank : seen) CHECK(rank == Seen{{true, false, true}, 32768, 0x1p-26});
}
