// LocalSteps: the values of torchft's fixture, the equivalence with averaged gradients, and refusals.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "ddp/ddp.hpp"
#include "tests/catch.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"
#include "tests/unit/worker_lib/support/world_errors.hpp"

using Catch::Contains;
using ddp::Context;
using ddp::LocalSteps;
using ddp::OuterOptions;
using ddp::testing::errors_of;
using ddp::testing::run_ranks;

namespace {

using Pair = std::pair<float, float>;

/// Two parameters that begin with 1 and lose 2 in each inner step; their values after 3, 6 and 9 steps.
std::vector<Pair> after_3_6_9(const OuterOptions& options) {
    const auto found = run_ranks({.ranks_per_node = {2}}, [&](Context& context) {
        float first = 1, second = 1;
        LocalSteps outer(context.world(), {first, second}, options);
        std::vector<Pair> values;
        for (int step = 1; step <= 9; ++step) {
            first -= 2;
            second -= 2;
            const bool synchronised = outer.step();
            if (synchronised != (step % 3 == 0)) return std::vector<Pair>{};
            if (step % 3 == 0) values.emplace_back(first, second);
        }
        return values;
    });
    CHECK(found[0] == found[1]);
    return found[0];
}

OuterOptions fixture(std::size_t delay, double keep_local) {
    return {.every = 6, .rate = 2, .momentum = 0, .fragments = 2, .delay = delay, .keep_local = keep_local};
}

}  // namespace

TEST_CASE("D1: fragments, delay and mixing give the values of torchft", "[local_steps]") {
    using Values = std::vector<Pair>;
    CHECK(after_3_6_9(fixture(0, 0)) == Values{{-11, -5}, {-17, -23}, {-35, -29}});
    CHECK(after_3_6_9(fixture(0, 0.5)) == Values{{-8, -5}, {-14, -17}, {-24.5, -23}});
    CHECK(after_3_6_9(fixture(1, 0)) == Values{{-7, -5}, {-13, -19}, {-27, -25}});
    CHECK(after_3_6_9(fixture(1, 0.5)) == Values{{-6, -5}, {-12, -15}, {-21.5, -21}});
    CHECK(after_3_6_9(fixture(0, 1)) == Values{{-5, -5}, {-11, -11}, {-17, -17}});
}

TEST_CASE("D1: a synchronisation in each step of SGD is an average of gradients", "[local_steps]") {
    const auto wire = GENERATE(ddp::DType::F32, ddp::DType::BF16, ddp::DType::F16);
    const double margin = wire == ddp::DType::F32 ? 1e-6 : wire == ddp::DType::F16 ? 2e-3 : 2e-2;
    for (const std::vector<float>& values : run_ranks({.ranks_per_node = {3}}, [&](Context& context) {
             std::vector<float> values(100);
             LocalSteps outer(context.world(), {values}, {.every = 1, .rate = 1, .momentum = 0, .wire = wire});
             for (int step = 0; step < 20; ++step) {
                 for (std::size_t i = 0; i < values.size(); ++i)
                     values[i] -=
                         0.1f * std::sin(static_cast<float>(i) + static_cast<float>(step * (context.rank() + 1)));
                 outer.step();
             }
             return values;
         })) {
        for (std::size_t i = 0; i < values.size(); ++i) {
            double expected = 0;
            for (int step = 0; step < 20; ++step) {
                for (int rank = 0; rank < 3; ++rank)
                    expected -= 0.1 / 3 * std::sin(static_cast<double>(i) + step * (rank + 1));
            }
            CHECK(double{values[i]} == Approx(expected).margin(margin));
        }
    }
}

TEST_CASE("momentum is that of SGD with Nesterov, and values are the same bits on all ranks", "[local_steps]") {
    const bool nesterov = GENERATE(true, false);
    const auto found = run_ranks({.ranks_per_node = {2}}, [&](Context& context) {
        std::vector<float> values{1, 2, static_cast<float>(context.rank())};  // rank 0's are broadcast
        LocalSteps outer(context.world(), {values}, {.every = 2, .nesterov = nesterov});
        for (int step = 0; step < 8; ++step) {
            for (float& value : values) value -= 0.1f * static_cast<float>(1 + context.rank());
            outer.step();
        }
        return values;
    });
    CHECK(std::memcmp(found[0].data(), found[1].data(), 3 * sizeof(float)) == 0);
    double value = 1, velocity = 0;
    for (int turn = 0; turn < 4; ++turn) {
        const double change = 2 * 0.15;  // the mean of both ranks
        velocity = 0.9 * velocity + change;
        value -= 0.7 * (nesterov ? change + 0.9 * velocity : velocity);
    }
    CHECK(found[0][0] == Approx(value).epsilon(1e-5));
    CHECK(found[0][2] == Approx(value - 1).margin(1e-5));
}

namespace {

/// A model of two parameters, its training on one rank, and its synchronisation.
struct Trainer {
    explicit Trainer(Context& context)
        : rank(context.rank()), outer(context.world(), {a, b}, {.every = 4, .fragments = 2, .delay = 1}) {}
    void train(int count) {
        for (int i = 0; i < count; ++i) {
            for (float& value : a) value -= 0.25f * static_cast<float>(rank + 1);
            for (float& value : b) value += 0.5f * value;
            outer.step();
        }
    }

    const int rank;
    std::vector<float> a = std::vector<float>(3, 1), b = std::vector<float>(5, 1);
    LocalSteps outer;
};

}  // namespace

TEST_CASE("restore goes back to each parameter's last synchronisation", "[local_steps]") {
    for (const std::string& wrong : run_ranks({.ranks_per_node = {2}}, [](Context& context) -> std::string {
             Trainer trainer(context);
             trainer.train(2);
             const auto a = trainer.a;  // synchronised in step 2
             trainer.train(2);
             const auto b = trainer.b;  // in step 4
             trainer.train(1);          // sends a
             try {
                 static_cast<void>(trainer.outer.state());
                 return "the state of an exchange in flight was returned";
             } catch (const ddp::Error& error) {
                 if (std::string(error.what()).find("is in flight") == std::string::npos) return error.what();
             }
             trainer.outer.restore();
             if (trainer.a != a || trainer.b != b) return "other values than after the last synchronisation";
             trainer.train(2);  // step 6 again
             return trainer.outer.state().size() == 5 ? "" : "the exchange of step 6 is missing";
         }))
        CHECK(wrong == "");
}

TEST_CASE("restore is possible after the failure of an exchange", "[local_steps]") {
    const auto found = run_ranks({.ranks_per_node = {2}}, [](Context& context) -> bool {
        Trainer trainer(context);
        trainer.train(4);
        const auto b = trainer.b;
        if (context.rank() == 1) return true;  // leaves, and the other one sends in vain
        try {
            trainer.train(2);
        } catch (const ddp::Error&) {
            trainer.outer.restore();
            return trainer.b == b;
        }
        return false;
    });
    CHECK(found[0]);
}

TEST_CASE("ranks that synchronise in different steps get the numbers of both", "[local_steps]") {
    const bool by_restore = GENERATE(true, false);
    for (const auto& error : errors_of({.ranks_per_node = {2}}, [&](Context& context) {
             Trainer trainer(context);
             trainer.train(5);  // the exchange of step 5 is in flight
             if (by_restore) {
                 if (context.rank() == 1) trainer.outer.restore();  // forgets it, and sends again after step 5
             } else {
                 trainer.train(1);
                 if (context.rank() == 1) trainer.outer.state().at(0).buffer.as<std::uint64_t>()[0] = 4;
             }
             trainer.train(6);
         })) {
        REQUIRE(error);
        CHECK(error->code() == ddp::ErrorCode::Mismatch);
        CHECK_THAT(error->what(), Contains("step 5") && Contains("step 7"));
    }
}

TEST_CASE("steps that are far apart are different steps", "[local_steps]") {
    for (const auto& error : errors_of({.ranks_per_node = {2}}, [](Context& context) {
             float value = 1;
             LocalSteps outer(context.world(), {value}, {.every = 250});
             outer.state().at(0).buffer.as<std::uint64_t>()[0] = context.rank() == 0 ? 249 : 4999;
             outer.step();
         })) {
        REQUIRE(error);
        CHECK(error->code() == ddp::ErrorCode::Mismatch);
        CHECK_THAT(error->what(), Contains("in different steps") && Contains("step 250") && Contains("step 5000"));
    }
}

TEST_CASE("a prefix distinguishes the states of two objects", "[local_steps]") {
    const auto names = run_ranks({}, [](Context& context) {
        Trainer trainer(context);
        return std::vector{trainer.outer.state().at(0).name, trainer.outer.state("generator").at(1).name,
                           trainer.outer.state("").at(0).name};
    });
    CHECK(names[0] == std::vector<std::string>{"local_steps.steps", "generator.0.synchronised", "steps"});
}

TEST_CASE("a saved state goes on with the same bits", "[local_steps]") {
    const auto found = run_ranks({.ranks_per_node = {2}}, [](Context& context) {
        Trainer whole(context);
        whole.train(12);
        Trainer before(context);
        before.train(8);
        Trainer after(context);
        const auto saved = before.outer.state();
        const auto loaded = after.outer.state();
        bool alike = saved.size() == loaded.size();
        for (std::size_t i = 0; alike && i < saved.size(); ++i) {
            alike = saved[i].name == loaded[i].name && saved[i].buffer.bytes() == loaded[i].buffer.bytes();
            if (alike) std::memcpy(loaded[i].buffer.data, saved[i].buffer.data, saved[i].buffer.bytes());
        }
        std::ranges::copy(before.a, after.a.begin());  // in place: the object has the addresses
        std::ranges::copy(before.b, after.b.begin());
        after.train(4);
        return alike && after.a == whole.a && after.b == whole.b;
    });
    CHECK(found[0]);
    CHECK(found[1]);
}

TEST_CASE("options that do not fit together are refused with what is wrong", "[local_steps]") {
    const auto refused = [](const OuterOptions& options, const std::string& text) {
        for (const auto& error : errors_of({.ranks_per_node = {2}}, [&](Context& context) {
                 std::vector<float> a(2), b(2);
                 LocalSteps(context.world(), {a, b}, options);
             })) {
            REQUIRE(error);
            CHECK_THAT(error->what(), Contains(text));
        }
    };
    refused({.fragments = 3}, "3 fragments of 2 parameters");
    refused({.every = 5, .fragments = 2}, "`every` is 5, which is not a multiple of 2");
    refused({.every = 0}, "`every` is 0");
    refused({.every = 4, .fragments = 2, .delay = 2}, "a delay of 2 steps, but a fragment is due every 2");
    refused({.keep_local = 1.5}, "keep_local is 1.5");
    refused({.momentum = 1}, "the momentum is 1");
    refused({.wire = ddp::DType::F64}, "wire is f64");
    for (const auto& error : errors_of({.ranks_per_node = {2}}, [](Context& context) {
             std::vector<float> a(2 + static_cast<std::size_t>(context.rank()));
             LocalSteps(context.world(), {a});
         })) {
        REQUIRE(error);
        CHECK(error->code() == ddp::ErrorCode::Mismatch);
        CHECK_THAT(error->what(), Contains("parameter 0 of 3 elements"));
    }
    for (const auto& error : errors_of({}, [](Context& context) {
             std::vector<double> a(2);
             LocalSteps(context.world(), {a});
         }))
        CHECK_THAT(error->what(), Contains("parameter 0 is f64 in host memory. Pass f32"));
}
