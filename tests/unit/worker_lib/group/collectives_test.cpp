// The collectives that are made of others: strings, many buffers at once, weighted means.

#include "ddp/collectives.hpp"

#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <exception>
#include <limits>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"

using namespace ddp;
using namespace ddp::testing;
using Catch::Contains;

namespace {

/// Rank r's text: its length differs from that of others, it holds a null byte, and rank 1 has none.
std::string text_of(int rank) {
    if (rank == 1) return {};
    std::string text(static_cast<std::size_t>(rank + 1) * 1000, static_cast<char>('a' + rank));
    text[1] = '\0';
    return text;
}

std::string error_of(const auto& call) {
    try {
        call();
    } catch (const Error& error) {
        return std::string(to_string(error.code())) + ": " + error.what();
    }
    return "none";
}

}  // namespace

TEST_CASE("strings of any length are broadcast and gathered", "[group][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{1}, {3}, {2, 1}}));
    const LocalWorld world{.ranks_per_node = shape};
    std::vector<std::string> all;
    for (int rank = 0; rank < world.size(); ++rank) all.push_back(text_of(rank));
    const auto wrong = run_ranks(world, [&](Context& context) {
        std::string complaints;
        ProcessGroup& group = context.world();
        const int last = group.size() - 1;
        for (int root = 0; root < group.size(); ++root) {
            std::string text = context.rank() == root ? text_of(root) : "to be replaced";
            broadcast_string(group, text, root);
            if (text != text_of(root)) complaints += " broadcast";
        }
        if (all_gather_strings(group, text_of(context.rank())) != all) complaints += " all_gather";
        const auto gathered = gather_strings(group, text_of(context.rank()), last);
        if (gathered != (context.rank() == last ? all : std::vector<std::string>())) complaints += " gather";
        return complaints;
    });
    CHECK(wrong == std::vector<std::string>(all.size()));
}

TEST_CASE("many buffers are reduced by one operation after a comparison, as if each was reduced by itself",
          "[group][unit]") {
    const auto seen = run_ranks({.ranks_per_node = {2, 1}}, [](Context& context) {
        std::vector<float> many{1, 2, 3};
        float one = 0.5F * static_cast<float>(context.rank());
        std::array<float, 0> none{};
        all_reduce_coalesced(context.world(), {many, one, none}, ReduceOp::Sum);
        const std::uint64_t operations = context.world().barrier().seq() - 1;
        all_reduce_coalesced(context.world(), {}, ReduceOp::Sum);
        many.push_back(one);
        many.push_back(static_cast<float>(operations));
        return many;
    });
    CHECK(seen == std::vector<std::vector<float>>(3, {3, 6, 9, 1.5F, 2}));
}

TEST_CASE("buffers whose counts differ between ranks are not added up, even if the totals are equal", "[group][unit]") {
    const auto outcomes = try_ranks({.ranks_per_node = {2}}, [](Context& context) {
        std::vector<float> first(context.rank() == 0 ? 3 : 2, 1);
        std::vector<float> second(context.rank() == 0 ? 2 : 3, 1);
        all_reduce_coalesced(context.world(), {first, second}, ReduceOp::Sum);
    });
    for (const auto& outcome : outcomes) {
        REQUIRE(outcome.ddp_error());
        CHECK(outcome.ddp_error()->code() == ErrorCode::Mismatch);
        CHECK_THAT(outcome.text(), Contains("the ranks disagree on the buffers of all_reduce_coalesced()") &&
                                       Contains("buffer 0 f32[3]") && Contains("buffer 0 f32[2]"));
    }
}

TEST_CASE("a string that a rank has no memory for fails on all ranks, with the reason", "[group][unit]") {
    const auto errors = run_ranks({.ranks_per_node = {2}, .timeout = std::chrono::minutes(5)}, [](Context& context) {
        try {
            if (context.rank() == 0) {  // announces a size that no string can have, as broadcast_string does
                std::size_t size = SIZE_MAX / 2 + 1;
                context.world().broadcast(size, 0, {.label = "broadcast_string()"}).wait();
                context.world().barrier().wait();
            } else {
                std::string text;
                broadcast_string(context.world(), text, 0);
            }
        } catch (const std::exception& error) {
            return std::string(error.what());
        }
        return std::string();
    });
    CHECK_THAT(errors[0], Contains("broadcast_string(): there is no memory for 9223372036854775808 bytes"));
    CHECK(!errors[1].empty());
}

TEST_CASE("all_reduce_coalesced refuses what it cannot put together, and names the buffer", "[group][unit]") {
    const auto errors = run_ranks({.ranks_per_node = {1}}, [](Context& context) {
        ProcessGroup& world = context.world();
        std::vector<float> floats(2);
        std::vector<double> doubles(2);
        const Buffer device(floats.data(), 2, Device::Cuda);
        const Buffer null(static_cast<float*>(nullptr), 2);
        return std::vector{
            error_of([&] {
                all_reduce_coalesced(world, {floats, doubles}, ReduceOp::Sum);
            }),
            error_of([&] {
                all_reduce_coalesced(world, {floats, device}, ReduceOp::Sum);
            }),
            error_of([&] { all_reduce_coalesced(world, {null}, ReduceOp::Sum); }),
            error_of([&] { all_reduce_coalesced(world, {floats}, ReduceOp::BitAnd); }),
        };
    });
    CHECK_THAT(errors[0][0], Contains("InvalidArgument: group 'world': rank 0") &&
                                 Contains("buffer 1 is of type f64, and buffer 0 of f32. Make one call for each type"));
    CHECK_THAT(errors[0][1], Contains("buffer 1 is device memory"));
    CHECK_THAT(errors[0][2], Contains("buffer 0 is null and has 2 elements"));
    CHECK_THAT(errors[0][3], Contains("integers only"));
}

TEST_CASE("in a weighted mean each rank counts as much as its weight", "[group][unit]") {
    const auto means = run_ranks({.ranks_per_node = {2, 1}}, [](Context& context) {
        // Rank 2 has an empty batch, and so no mean.
        const double nan = std::numeric_limits<double>::quiet_NaN();
        const double weight = std::array{1.0, 3.0, 0.0}[static_cast<std::size_t>(context.rank())];
        std::array<double, 2> wide{context.rank() == 2 ? nan : 4.0 * context.rank(), 10};
        std::array<float, 1> narrow{1.0F + static_cast<float>(context.rank())};
        const double total = weighted_mean(context.world(), wide, weight);
        weighted_mean(context.world(), narrow, weight);
        float unweighted = 7;
        const double nothing = weighted_mean(context.world(), unweighted, 0);
        return std::vector<double>{wide[0], wide[1], narrow[0], total, nothing, unweighted};
    });
    CHECK(means == std::vector<std::vector<double>>(3, {3, 10, 1.75, 4, 0, 0}));
}

TEST_CASE("weighted_mean refuses weights and types that have no mean", "[group][unit]") {
    const auto errors = run_ranks({.ranks_per_node = {1}}, [](Context& context) {
        double value = 1;
        int integer = 1;
        return std::vector{
            error_of([&] { weighted_mean(context.world(), value, -1); }),
            error_of([&] { weighted_mean(context.world(), value, std::nan("")); }),
            error_of([&] { weighted_mean(context.world(), integer, 1); }),
        };
    });
    CHECK_THAT(errors[0][0], Contains("weighted_mean(): the weight is -1, and must be finite and not negative"));
    CHECK_THAT(errors[0][1], Contains("the weight is nan"));
    CHECK_THAT(errors[0][2], Contains("of type i32, and must be f32 or f64"));
}
