#include <boost/json.hpp>
#include <cstdint>

#include "ddp/ddp.hpp"
#include "tests/catch.hpp"
#include "tests/unit/worker_lib/local_world.hpp"
#include "worker_lib/bench/measure.hpp"
#include "worker_lib/bench/options.hpp"
#include "worker_lib/bench/pattern.hpp"
#include "worker_lib/bench/report.hpp"

using Catch::Contains;
using namespace ddp::bench;
using ddp::DType;
using ddp::ReduceOp;
using ddp::testing::run_ranks;

namespace {

/// What a command line comes to: the exit code if there is nothing to measure.
struct Parsed {
    std::optional<int> exit_code;
    Options options;
};
Parsed parse(std::vector<std::string> words) {
    words.insert(words.begin(), "ddp-bench");
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    Parsed parsed;
    parsed.exit_code = parse_options(static_cast<int>(pointers.size()), pointers.data(), false, parsed.options);
    return parsed;
}

}  // namespace

TEST_CASE("ddp-bench's options", "[bench]") {
    const auto parsed =
        parse({"-c", "all_gather,reduce", "-b", "1k", "-e", "2M", "-f", "4", "-d", "bf16", "-o", "avg"});
    REQUIRE(!parsed.exit_code);
    CHECK(parsed.options.collectives == std::vector{Collective::kAllGather, Collective::kReduce});
    CHECK(sizes(parsed.options) == std::vector<std::size_t>{1024, 4096, 16384, 65536, 262144, 1048576});
    CHECK(parsed.options.dtype == DType::bf16);
    CHECK(parsed.options.reduce_op == ReduceOp::Avg);
    CHECK(parse({"-c", "all"}).options.collectives.size() == kAllCollectives.size());
    CHECK(sizes(parse({"-b", "0", "-e", "2"}).options) == std::vector<std::size_t>{0, 1, 2});
}

TEST_CASE("ddp-bench refuses what cannot be measured", "[bench]") {
    const auto words = GENERATE(
        std::vector<std::string>{"-c", "all_reduced"}, std::vector<std::string>{"-b", "8k", "-e", "1k"},
        std::vector<std::string>{"-o", "band"}, std::vector<std::string>{"-o", "avg", "-d", "i32"},
        std::vector<std::string>{"-d", "f8"}, std::vector<std::string>{"-n", "0"}, std::vector<std::string>{"-f", "1"},
        std::vector<std::string>{"-b", "-1"}, std::vector<std::string>{"-r", "-1"},
        std::vector<std::string>{"--backend", "mpi"}, std::vector<std::string>{"surplus"});
    CAPTURE(words);
    CHECK(parse(words).exit_code == 2);
}

TEST_CASE("every collective gives what the pattern expects, and a wrong element is counted", "[bench]") {
    const auto collective = GENERATE(from_range(kAllCollectives));
    const auto dtype = GENERATE(DType::i8, DType::u64, DType::f16, DType::bf16, DType::f32, DType::f64);
    CAPTURE(name_of(collective), to_string(dtype));
    const auto outcomes = run_ranks({.ranks_per_node = {2, 1}}, [&](ddp::Context& context) {
        Options options;
        options.iterations = 2;
        options.warm_up = 1;
        const Memory memory(context.world(), 8 * 300, context.rank() == 1);
        std::vector<std::size_t> wrong;
        for (const bool in_place : {false, true}) {
            if (in_place ? !has_in_place(collective) : !has_out_of_place(collective)) continue;
            for (const std::size_t count : {0u, 3u, 300u}) {
                const Call call{.collective = collective,
                                .count = count,
                                .dtype = dtype,
                                .op = ReduceOp::Sum,
                                .root = 2,
                                .in_place = in_place,
                                .rank = context.rank(),
                                .ranks = 3};
                const Measured measured = measure(context.world(), call, memory, options);
                wrong.push_back(measured.checked ? measured.wrong : 1000);
            }
        }
        return wrong;
    });
    for (const auto& wrong : outcomes) CHECK(wrong == std::vector<std::size_t>(wrong.size(), 0));
}

TEST_CASE("a wrong element is counted", "[bench]") {
    const auto op = GENERATE(ReduceOp::Sum, ReduceOp::Min, ReduceOp::Max, ReduceOp::Product, ReduceOp::BXor);
    const Call call{.collective = Collective::kAllReduce,
                    .count = 50,
                    .dtype = DType::i32,
                    .op = op,
                    .root = 0,
                    .in_place = false,
                    .rank = 0,
                    .ranks = 2};
    const auto wrong = run_ranks({.ranks_per_node = {2}}, [&](ddp::Context& context) {
        Call own = call;
        own.rank = context.rank();
        std::vector<std::int32_t> in(50);
        std::vector<std::int32_t> out(50);
        fill_input(own, ddp::buffer(std::span(in)));
        start(context.world(), own, {ddp::buffer(std::span(in)), ddp::buffer(std::span(out))}).wait();
        const std::size_t before = count_wrong(own, ddp::buffer(std::span(out)));
        out[7] += 1;
        out[49] -= 1;
        return std::pair{before, count_wrong(own, ddp::buffer(std::span(out)))};
    });
    CHECK(wrong == std::vector(2, std::pair{std::size_t{0}, std::size_t{2}}));
}

TEST_CASE("bus bandwidth is nccl-tests'", "[bench]") {
    CHECK(bus_factor(Collective::kAllReduce, 4) == 1.5);
    CHECK(bus_factor(Collective::kBroadcast, 4) == 1);
    CHECK(bus_factor(Collective::kAllToAll, 4) == 0.75);
    CHECK(bus_factor(Collective::kSendRecv, 4) == 1);
    Row row{.call = {.collective = Collective::kAllReduce,
                     .count = 250'000,
                     .dtype = DType::f32,
                     .op = ReduceOp::Sum,
                     .root = 0,
                     .in_place = false,
                     .rank = 0,
                     .ranks = 4},
            .bytes = 1'000'000};
    row.in_place = Measured{.us = {.mean = 500, .median = 400, .p99 = 900}, .wrong = 3, .checked = true};
    CHECK(algorithm_bandwidth(row, *row.in_place) == Approx(2));
    CHECK(bus_bandwidth(row, *row.in_place) == Approx(3));
    CHECK_THAT(table_row(row), Contains("1000000       250000   f32   sum   -1"));
    CHECK_THAT(table_row(row), Contains("      500    2.00    3.00      3\n"));
    CHECK_THAT(table_foot({row}), Contains("wrong values: 3") && Contains("3.00 GB/s"));
    CHECK(wrong_values({row}) == 3);

    const auto json = boost::json::parse(to_json({row}, "about")).as_object();
    const auto& first = json.at("rows").as_array().at(0).as_object();
    CHECK(json.at("ranks").as_int64() == 4);
    CHECK(first.at("out_of_place").is_null());
    CHECK(first.at("in_place").as_object().at("p99_us").as_double() == 900);
    CHECK(first.at("in_place").as_object().at("wrong").as_int64() == 3);
}

TEST_CASE("head and rows of the table have the same columns", "[bench]") {
    const std::string head = table_head(Collective::kReduce, "2 ranks");
    CHECK_THAT(head, Contains("# reduce: 2 ranks"));
    const std::string last = head.substr(head.rfind('\n', head.size() - 2) + 1);
    const Row row{.call = {.collective = Collective::kReduce}, .bytes = 0};
    CHECK(last.size() == table_row(row).size());
}
