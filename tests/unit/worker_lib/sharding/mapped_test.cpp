// Units that are the pages of all ranks' parts train as those that are copied, and nothing of them stays.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include "ddp/ddp.hpp"
#include "tests/catch.hpp"
#include "tests/unit/worker_lib/support/leaks.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"
#include "worker_lib/src/sharding/read_only_view.hpp"
#include "worker_lib/src/sharding/shard_layout.hpp"

using ddp::Context;
using ddp::DType;
using ddp::ParamSpec;
using ddp::Reduce;
using ddp::Shard;
using ddp::ShardedParameters;
using ddp::Sharding;
using ddp::ShardOptions;
using ddp::testing::LocalWorld;
using ddp::testing::run_ranks;

namespace {

using Units = std::vector<std::vector<ParamSpec>>;

/// Parts of these begin and end within tensors, are padding, and are the whole of one.
Units units_of(DType type) {
    return {{{"a", 4'001, type}, {"b", 13, type}, {"c", 3'000, type}},
            {{"d", 3, type}},
            {{"e", 4 * 1'024, type}},
            {{"f", 2'047, type}, {"g", 2'049, type}}};
}

/// Returns element `i` of a buffer of any type.
double element(const ddp::ConstBuffer& buffer, std::size_t i) {
    switch (buffer.dtype) {
        case DType::F64: return buffer.as<double>()[i];
        case DType::BF16: return double{float{buffer.as<ddp::BFloat16>()[i]}};
        default: return double{buffer.as<float>()[i]};
    }
}

void set_element(const ddp::Buffer& buffer, std::size_t i, double value) {
    switch (buffer.dtype) {
        case DType::F64: buffer.as<double>()[i] = value; break;
        case DType::BF16: buffer.as<ddp::BFloat16>()[i] = ddp::BFloat16(static_cast<float>(value)); break;
        default: buffer.as<float>()[i] = static_cast<float>(value);
    }
}

/// Appends the bytes of all parameters of a unit, as its scope shows them.
void append(std::vector<std::byte>& to, const ShardedParameters::Scope& scope, std::size_t params) {
    for (std::size_t p = 0; p < params; ++p) {
        const ddp::ConstBuffer values = scope.param(p);
        const auto* const bytes = static_cast<const std::byte*>(values.data);
        to.insert(to.end(), bytes, bytes + values.bytes());
    }
}

/// Writes gradients that depend on each parameter, the rank and the step.
void write_gradients(const ShardedParameters::GradScope& scope, std::size_t params, double salt) {
    for (std::size_t p = 0; p < params; ++p) {
        const ddp::ConstBuffer values = scope.param(p);
        const ddp::Buffer grads = scope.grad(p);
        for (std::size_t i = 0; i < values.count; ++i)
            set_element(grads, i,
                        0.25 * element(values, i) + std::fmod(static_cast<double>(i) * 0.37 + salt, 1.0) - 0.5);
    }
}

/// Returns all that a rank saw in its scopes: forward, an evaluation before the update, backward.
std::vector<std::byte> train(Context& context, DType type, const ShardOptions& options) {
    const Units units = units_of(type);
    ShardedParameters model(context.world(), units, options);
    model.fill([](std::size_t param, std::size_t begin, ddp::Buffer part) {
        for (std::size_t i = 0; i < part.count; ++i)
            set_element(part, i, std::sin(static_cast<double>(param + begin + i)));
    });
    std::vector<std::byte> seen;
    for (int step = 0; step < 3; ++step) {
        for (std::size_t u = 0; u < units.size(); ++u) append(seen, model.forward(u), units[u].size());
        model.begin_backward();
        for (std::size_t u = units.size(); u-- > 0;)
            write_gradients(model.backward(u), units[u].size(), 0.61 * context.rank() + step);
        model.finish_backward();
        if (step % 2 == 1) {
            for (std::size_t u = 0; u < units.size(); ++u) append(seen, model.forward(u), units[u].size());
            model.changed();
        }
        for (const Shard& shard : model.shards()) {
            for (std::size_t i = 0; i < shard.values.count; ++i)
                set_element(shard.values, i, element(shard.values, i) - 0.1 * element(shard.grad, i));
        }
    }
    return seen;
}

}  // namespace

TEST_CASE("A2: mapped units have the bits of copied ones, whatever is gathered ahead", "[sharding]") {
    const int ranks = GENERATE(1, 2, 4);
    const DType type = GENERATE(DType::F32, DType::F64);
    const bool narrow = GENERATE(false, true);
    if (narrow && type != DType::F32) return;
    CAPTURE(ranks, narrow);
    const auto run = [&](ShardOptions options) {
        if (narrow) options.param_dtype = DType::BF16;
        return run_ranks({.ranks_per_node = {ranks}}, [&](Context& context) { return train(context, type, options); });
    };
    const std::vector<std::byte> expected = run({.sharding = Sharding::Full, .mapped = false})[0];
    for (const Sharding sharding : {Sharding::Full, Sharding::GradOp, Sharding::Optimizer, Sharding::None}) {
        for (const int prefetch : {0, 3}) {
            CAPTURE(static_cast<int>(sharding), prefetch);
            for (const std::vector<std::byte>& seen : run({.sharding = sharding, .prefetch = prefetch}))
                CHECK((seen == expected));
        }
    }
}

TEST_CASE("no rank sees an update before its own, nor misses one, however late it is", "[sharding]") {
    const bool narrow = GENERATE(false, true);
    constexpr std::size_t kCount = 40'000;
    ShardOptions options;
    if (narrow) options.param_dtype = DType::BF16;
    for (const std::string& found : run_ranks({.ranks_per_node = {3}}, [&](Context& context) -> std::string {
             ShardedParameters model(context.world(), {{{"w", kCount}}, {{"v", 10}}}, options);
             for (int step = 0; step < 60; ++step) {
                 // One rank holds a scope over the end of its last backward scope, and reads late.
                 const bool late = step % 3 == context.rank();
                 {
                     const auto first = model.forward(0);
                     model.begin_backward();
                     for (const std::size_t u : {1u, 0u}) {
                         const auto scope = model.backward(u);
                         std::ranges::fill(scope.grad<float>(0), -1.0f);
                     }
                     if (late)
                         std::this_thread::sleep_for(std::chrono::milliseconds(1));  // the others would have updated
                     for (std::size_t i = 0; i < kCount; ++i) {
                         if (element(first.param(0), i) != step)
                             return "step " + std::to_string(step) + " shows " +
                                    std::to_string(element(first.param(0), i));
                     }
                 }
                 model.finish_backward();
                 for (const Shard& shard : model.shards()) {
                     const auto values = shard.values.as<float>(), grads = shard.grad.as<float>();
                     for (std::size_t i = 0; i < values.size(); ++i) values[i] -= grads[i];
                 }
             }
             return "";
         }))
        CHECK(found.empty());
}

TEST_CASE("mapped parts are whole pages, the same on all replicas", "[sharding]") {
    const auto layout = ddp::detail::lay_out_units(units_of(DType::F32), 3, 1'024);
    std::vector<std::size_t> parts;
    for (const auto& unit : layout.units) parts.push_back(unit.part);
    CHECK(parts == std::vector<std::size_t>{3 * 1'024, 1'024, 2 * 1'024, 2 * 1'024});

    // The first two ranks share a node, the others do not. So both pairs copy.
    const LocalWorld world{.ranks_per_node = {2, 1, 1}};
    for (const auto& [sizes, value] : run_ranks(world, [](Context& context) {
             ddp::Mesh mesh(context, {{"replica", 2}, {"shard", 2}});
             ShardedParameters model(mesh["shard"], {{{"w", 100}}}, {.replicas = &mesh["replica"]});
             model.begin_backward();
             {
                 const auto scope = model.backward(0);
                 std::ranges::fill(scope.grad<float>(0), static_cast<float>(context.rank()));
             }
             model.finish_backward();
             return std::pair(model.size(), model.shards()[0].grad.as<float>()[0]);
         })) {
        CHECK((sizes == 64 || sizes == 36));
        CHECK(value == 1.5f);
    }
}

TEST_CASE("units are copied if they would take too many mappings", "[sharding]") {
    constexpr std::size_t kUnits = 16'385;
    const Units units(kUnits, {{"", 64}});
    for (const std::size_t size : run_ranks({.ranks_per_node = {2}}, [&](Context& context) {
             ShardedParameters model(context.world(), units);
             model.fill([](std::size_t, std::size_t, ddp::Buffer part) { std::ranges::fill(part.as<float>(), 3.0f); });
             return model.forward(kUnits - 1).param<float>(0)[63] == 3 ? model.size() : 0;
         }))
        CHECK(size == kUnits * 32);  // mapped, rank 0 would have the only page of each unit
}

TEST_CASE("mapped units leave nothing behind", "[sharding]") {
    const std::size_t before = ddp::testing::shared_mappings();
    run_ranks({.ranks_per_node = {3}}, [](Context& context) {
        ShardedParameters model(context.world(), units_of(DType::F32));
        static_cast<void>(model.forward(0));
    });
    CHECK(ddp::testing::shared_mappings() == before);
}

TEST_CASE("ranks that map and ranks that copy are a mismatch", "[sharding]") {
    for (const auto& outcome : ddp::testing::try_ranks({.ranks_per_node = {2}}, [](Context& context) {
             ShardedParameters(context.world(), {{{"w", 100}}}, {.mapped = context.rank() == 0});
         }))
        CHECK_THAT(outcome.text(), Catch::Contains("prefetch 1, mapped") && Catch::Contains("prefetch 1, copied"));
}
