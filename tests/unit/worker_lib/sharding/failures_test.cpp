// What goes wrong in scopes: the error of the rank that makes the mistake, and that of its peers, which names the unit.
#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "ddp/ddp.hpp"
#include "tests/catch.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"
#include "tests/unit/worker_lib/support/world_errors.hpp"

using Catch::Contains;
using ddp::Context;
using ddp::ErrorCode;
using ddp::ParamSpec;
using ddp::Reduce;
using ddp::ShardedParameters;
using ddp::Sharding;
using ddp::ShardOptions;
using ddp::testing::errors_of;
using ddp::testing::LocalWorld;
using ddp::testing::run_ranks;

namespace {

using Units = std::vector<std::vector<ParamSpec>>;

constexpr std::chrono::minutes kNoDeadline{5};  // no test waits for a deadline
const LocalWorld kTwo{.ranks_per_node = {2}, .timeout = kNoDeadline};

Units three_units() { return {{{"fc0.weight", 100}}, {{"fc1.weight", 100}}, {{"fc2.weight", 100}}}; }

void backward_of(ShardedParameters& model, std::size_t unit) {
    const auto scope = model.backward(unit);
    for (float& value : scope.grad<float>(0)) value = 1;
}

/// Returns the text of what rank 0 and rank 1 throw.
std::vector<std::string> texts_of(const std::function<void(Context&, ShardedParameters&)>& body,
                                  const ShardOptions& options = {}) {
    std::vector<std::string> texts;
    for (const auto& error : errors_of(kTwo, [&](Context& context) {
             ShardedParameters model(context.world(), three_units(), options);
             body(context, model);
         }))
        texts.push_back(error ? error->what() : "nothing");
    return texts;
}

}  // namespace

TEST_CASE("A6: an exception in a scope ends it on all ranks, with the unit's name", "[sharding]") {
    const bool backward = GENERATE(false, true);
    const auto sharding = GENERATE(Sharding::Full, Sharding::GradOp, Sharding::Optimizer);
    const bool mapped = GENERATE(true, false);
    const auto begin = std::chrono::steady_clock::now();
    const auto texts = texts_of(
        [&](Context& context, ShardedParameters& model) {
            for (std::size_t u = 0; u < 3; ++u) {
                const auto scope = model.forward(u);
                if (!backward && u == 1 && context.rank() == 0) throw ddp::Error(ErrorCode::System, "out of memory");
            }
            model.begin_backward();
            for (std::size_t u = 3; u-- > 0;) {
                const auto scope = model.backward(u);
                if (u == 1 && context.rank() == 0) throw ddp::Error(ErrorCode::System, "out of memory");
            }
            model.finish_backward();
        },
        {.sharding = sharding, .mapped = mapped});
    CHECK(texts[0] == "out of memory");
    CHECK_THAT(texts[1], Contains(backward ? "an exception ended the backward scope of unit 1 ('fc1.weight')"
                                           : "an exception ended the forward scope of unit 1 ('fc1.weight')"));
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::minutes{1});
}

TEST_CASE("A6: scopes in another order on one rank are a mismatch that names both units", "[sharding]") {
    const bool mapped = GENERATE(true, false);
    const auto texts = texts_of(
        [](Context& context, ShardedParameters& model) {
            const std::size_t first = context.rank() == 0 ? 1 : 2;
            static_cast<void>(model.forward(first));
            static_cast<void>(model.forward(3 - first));
        },
        {.mapped = mapped});
    for (const std::string& text : texts) {
        CHECK_THAT(text, Contains("unit 1 fc1.weight") && Contains("unit 2 fc2.weight") && Contains("labels"));
    }
}

TEST_CASE("A6: a unit that is left out in a backward is named, on all ranks", "[sharding]") {
    const auto texts = texts_of([](Context& context, ShardedParameters& model) {
        model.begin_backward();
        for (const std::size_t unit : {2u, 1u, 0u}) {
            if (unit != 1 || context.rank() == 1) backward_of(model, unit);
        }
        model.finish_backward();
        static_cast<void>(model.forward(0));
    });
    for (const std::string& text : texts) CHECK_THAT(text, Contains("fc1.weight"));
}

TEST_CASE("a unit that all ranks leave out is an error", "[sharding]") {
    for (const std::string& text : texts_of([](Context&, ShardedParameters& model) {
             model.begin_backward();
             backward_of(model, 2);
             model.finish_backward();
         }))
        CHECK_THAT(text, Contains("no backward scope was opened for unit 0 ('fc0.weight'), unit 1 ('fc1.weight')"));
}

TEST_CASE("calls out of order are refused, and the model stays usable", "[sharding]") {
    run_ranks(kTwo, [](Context& context) {
        ShardedParameters model(context.world(), three_units());
        const auto refused = [](auto call) -> std::string {
            try {
                call();
            } catch (const ddp::Error& error) {
                return error.code() == ErrorCode::InvalidArgument ? error.what() : "another error";
            }
            return "nothing";
        };
        std::vector<std::pair<std::string, std::string>> found;  // text, what it has to contain
        found.emplace_back(refused([&] { static_cast<void>(model.backward(0)); }), "call begin_backward first");
        found.emplace_back(refused([&] { model.finish_backward(); }), "without begin_backward");
        found.emplace_back(refused([&] { static_cast<void>(model.forward(3)); }), "there is no unit 3: 3 were passed");
        found.emplace_back(refused([&] { static_cast<void>(model.clip(0)); }), "expected a positive number");
        found.emplace_back(refused([&] { model.whole(9, {}); }), "there is no parameter 9: 3 were passed");
        found.emplace_back(refused([&] { model.whole(0, {}); }),
                           "'fc0.weight' needs f32[100] in host memory, not f32[0]");
        found.emplace_back(refused([&] { model.whole(0, {}, 2); }),
                           "the root is 2: expected a rank of the group, 0 to 1");
        {
            const auto scope = model.forward(0);
            found.emplace_back(refused([&] { static_cast<void>(scope.param(1)); }), "has no parameter 1");
            found.emplace_back(refused([&] { static_cast<void>(scope.param<double>(0)); }), "f32");
            found.emplace_back(refused([&] { model.changed(); }), "a scope is open");
        }
        model.begin_backward();
        found.emplace_back(refused([&] { model.begin_backward(); }), "was not ended by finish_backward");
        found.emplace_back(refused([&] { model.changed(); }), "a backward is going on");
        backward_of(model, 2);
        found.emplace_back(refused([&] { backward_of(model, 2); }), "unit 2 ('fc2.weight') has had its scope");
        backward_of(model, 1);
        backward_of(model, 0);
        {
            const auto scope = model.forward(0);
            found.emplace_back(refused([&] { model.finish_backward(); }), "finish_backward: a scope is open");
        }
        model.finish_backward();
        for (const auto& [text, part] : found) {
            if (text.find(part) == std::string::npos) throw std::runtime_error("'" + text + "' lacks '" + part + "'");
        }
        for (const ddp::Shard& shard : model.shards()) {
            for (const float value : shard.grad.as<float>()) {
                if (value != 1) throw std::runtime_error("a gradient is not 1");
            }
        }
    });
}

TEST_CASE("after a failure every call throws its cause", "[sharding]") {
    const auto texts = texts_of([](Context& context, ShardedParameters& model) {
        if (context.rank() == 0) {
            try {
                const auto scope = model.forward(0);
                throw std::runtime_error("out of memory");
            } catch (const std::runtime_error&) {
                // The trainer goes on, wrongly.
            }
        }
        for (std::size_t u = 0; u < 3; ++u) static_cast<void>(model.forward(u));
    });
    for (const std::string& text : texts) CHECK_THAT(text, Contains("unit 0 ('fc0.weight')"));
}

TEST_CASE("units and options that cannot be are refused on all ranks", "[sharding]") {
    struct Case {
        Units units;
        ShardOptions options;
        const char* text;
    };
    const Case bad =
        GENERATE(Case{{}, {}, "there are no units"}, Case{{{{"a", 1}}, {}}, {}, "unit 1 has no elements"},
                 Case{{{{"a", 1}}, {{"b", 0}}}, {}, "unit 1 has no elements"},
                 Case{{{{"a", 1}}, {{"a", 1}}}, {}, "parameter 'a' is in unit 0 and in unit 1"},
                 Case{{{{"a", 1}, {"b", 1, ddp::DType::F64}}}, {}, "parameter 'b' of unit 0 is f64, but 'a' is f32"},
                 Case{{{{"a", 1, ddp::DType::BF16}}}, {}, "the parameters are bf16. Make them f32 or f64"},
                 Case{{{{"a", 1}}}, {.param_dtype = ddp::DType::F64}, "param_dtype is f64, but the parameters are f32"},
                 Case{{{{"a", 1, ddp::DType::F64}}}, {.reduce_dtype = ddp::DType::BF16}, "expected that type"},
                 Case{{{{"a", std::size_t(-1)}}},
                      {},
                      "parameter 'a' of unit 0 has 18446744073709551615 elements: more than memory"},
                 Case{{{{"a", 1}}}, {.prefetch = -1}, "prefetch is -1: expected 0 to 1000"});
    for (const auto& error :
         errors_of(kTwo, [&](Context& context) { ShardedParameters(context.world(), bad.units, bad.options); })) {
        REQUIRE(error);
        CHECK(error->code() == ErrorCode::InvalidArgument);
        CHECK_THAT(error->what(), Contains(bad.text));
    }
}

TEST_CASE("ranks that pass other units, or a group as its own replicas, get an error that says so", "[sharding]") {
    for (const auto& error : errors_of(kTwo, [](Context& context) {
             Units units = three_units();
             if (context.rank() == 1) units[1][0].count = 99;
             ShardedParameters(context.world(), units);
         })) {
        REQUIRE(error);
        CHECK(error->code() == ErrorCode::Mismatch);
        CHECK_THAT(error->what(), Contains("unit 1, parameter 0 'fc1.weight' f32[99]"));
    }
    for (const auto& error : errors_of(kTwo, [](Context& context) {
             ShardedParameters(context.world(), three_units(), {.replicas = &context.world()});
         })) {
        REQUIRE(error);
        CHECK_THAT(error->what(), Contains("have 2 ranks in common"));
    }
}

TEST_CASE("replicas that hold different parts are named, and no rank waits for another", "[sharding]") {
    const auto errors = errors_of({.ranks_per_node = {4}, .timeout = kNoDeadline}, [](Context& context) {
        const int rank = context.rank();
        const auto group = context.world().split(rank / 2, rank, "shard");            // {0, 1}, {2, 3}
        const auto replicas = context.world().split(rank % 3 == 0, rank, "replica");  // {1, 2}, {0, 3}
        ShardedParameters(*group, three_units(), {.replicas = replicas.get()});
    });
    for (const auto& error : errors) {
        REQUIRE(error);
        CHECK(error->code() == ErrorCode::Mismatch);
        CHECK_THAT(error->what(),
                   Contains("part 0 of 2") && Contains("part 1 of 2") && Contains("dimensions of a Mesh"));
    }
}

TEST_CASE("a difference inside one group ends its replicas as well", "[sharding]") {
    const auto errors = errors_of({.ranks_per_node = {4}, .timeout = kNoDeadline}, [](Context& context) {
        ddp::Mesh mesh(context, {{"replica", 2}, {"shard", 2}});
        Units units = three_units();
        if (context.rank() == 3) units[0][0].count = 7;
        ShardedParameters(mesh["shard"], units, {.replicas = &mesh["replica"]});
    });
    for (std::size_t rank = 0; rank < 4; ++rank) {
        REQUIRE(errors[rank]);
        CHECK(errors[rank]->code() == ErrorCode::Mismatch);
        CHECK_THAT(errors[rank]->what(), Contains(rank < 2 ? "differ, see their error" : "f32[7]"));
    }
}

TEST_CASE("norms of sums that are no averages are refused", "[sharding]") {
    for (const std::string& text : texts_of([](Context&, ShardedParameters& model) {
             model.begin_backward(Reduce::Shard);
             for (const std::size_t unit : {2u, 1u, 0u}) backward_of(model, unit);
             model.finish_backward();
             static_cast<void>(model.clip(1));
         }))
        CHECK_THAT(text, Contains("the gradients are not averages yet"));
}
