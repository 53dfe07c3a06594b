#include <boost/json.hpp>
#include <cstdint>
#include <list>

#include "ddp/ddp.hpp"
#include "tests/catch.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"
#include "worker_lib/bench/measure.hpp"
#include "worker_lib/bench/options.hpp"
#include "worker_lib/bench/pattern.hpp"
#include "worker_lib/bench/report.hpp"
#include "worker_lib/bench/run.hpp"
#include "worker_lib/src/group/group_impl.hpp"

using Catch::Contains;
using namespace ddp::bench;
using ddp::DType;
using ddp::ReduceOp;
using ddp::testing::run_ranks;

namespace {

/// Parses a command line: the exit code if there is nothing to measure.
struct Parsed {
    std::optional<int> exit_code;
    Options options;
};
Parsed parse(std::vector<std::string> words, int ranks = 0) {
    words.insert(words.begin(), "ddp-bench");
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    Parsed parsed;
    parsed.exit_code = parse_options(static_cast<int>(pointers.size()), pointers.data(), false, ranks, parsed.options);
    return parsed;
}

/// A backend whose operations are done when they are called; after `good_calls` of them the machine is lost.
class LostLater final : public ddp::detail::BackendImpl, private ddp::Arena {
public:
    explicit LostLater(int good_calls) : good_calls_(good_calls) {}
    ddp::Backend kind() const override { return ddp::Backend::Native; }
    std::unique_ptr<ddp::detail::BackendImpl> make_another(const ddp::detail::GroupSpec&) const override {
        return nullptr;
    }
    std::shared_ptr<ddp::detail::WorkState> submit(ddp::detail::Operation&& operation,
                                                   ddp::detail::OperationRecord& record) override {
        record.write(operation, ddp::detail::Announced::kNo);
        if (good_calls_-- == 0) throw ddp::Error(ddp::ErrorCode::System, "the machine is lost");
        return nullptr;
    }
    ddp::detail::QueuedBatch transfer(ddp::detail::TransferList&&, ddp::detail::TransferRecord&) override {
        return ddp::detail::QueuedBatch::done();
    }
    ddp::Arena& arena() override { return *this; }
    void abort(std::string_view) override {}
    bool after_callbacks(std::function<void()>) const override { return false; }
    bool is_in_callback() const override { return false; }

private:
    void* allocate(std::size_t bytes) override { return blocks_.emplace_back(bytes / 8 + 1).data(); }

    int good_calls_;
    std::list<std::vector<std::uint64_t>> blocks_;
};

/// Measures on such a backend. Returns the rows and the error that ended the run.
std::pair<std::vector<Row>, std::string> run_until_lost(const Options& options, int good_calls) {
    ddp::detail::GroupSpec spec;
    spec.name = "world";
    spec.members = {0};
    spec.default_timeout = std::chrono::seconds(10);
    const auto group = ddp::detail::make_group(std::move(spec), std::make_unique<LostLater>(good_calls));
    std::pair<std::vector<Row>, std::string> result;
    try {
        run(*group, options, nullptr, result.first, [](const Row&, bool) {});
    } catch (const ddp::Error& error) {
        result.second = error.what();
    }
    return result;
}

}  // namespace

TEST_CASE("ddp-bench's options", "[bench]") {
    const auto parsed =
        parse({"-c", "all_gather,reduce", "-b", "1k", "-e", "2M", "-f", "4", "-d", "bf16", "-o", "avg"});
    REQUIRE(!parsed.exit_code);
    CHECK(parsed.options.collectives == std::vector{Collective::kAllGather, Collective::kReduce});
    CHECK(counts(Collective::kReduce, parsed.options, 3) ==
          std::vector<std::size_t>{512, 2048, 8192, 32768, 131072, 524288});
    CHECK(parsed.options.dtype == DType::BF16);
    CHECK(parsed.options.reduce_op == ReduceOp::Avg);
    CHECK(parse({"-c", "all"}).options.collectives.size() == kAllCollectives.size());
}

TEST_CASE("a root that is not a rank is refused by the command line, if the number of ranks is known", "[bench]") {
    CHECK(parse({"-r", "4"}, 4).exit_code == 2);
    CHECK(parse({"-r", "1"}, 1).exit_code == 2);
    CHECK_FALSE(parse({"-r", "3"}, 4).exit_code);
    CHECK_FALSE(parse({"-r", "4"}, 0).exit_code);
}

TEST_CASE("sizes that hold no element are not measured as if they were 0", "[bench]") {
    CHECK(parse({"-b", "3", "-e", "3"}).exit_code == 2);  // of f32
    CHECK(parse({"-b", "1", "-e", "7", "-d", "f64"}).exit_code == 2);
    CHECK_FALSE(parse({"-b", "3", "-e", "3", "-d", "i8"}).exit_code);
    CHECK_FALSE(parse({"-b", "0", "-e", "0"}).exit_code);
    CHECK(counts(Collective::kAllReduce, parse({"-b", "3", "-e", "12"}).options, 2) == std::vector<std::size_t>{1, 3});
}

TEST_CASE("ddp-bench measures each count once, however small the steps are", "[bench]") {
    const Options small = parse({"-b", "0", "-e", "14", "-f", "1.1"}).options;
    CHECK(counts(Collective::kAllReduce, small, 2) == std::vector<std::size_t>{0, 1, 2, 3});
    CHECK(counts(Collective::kAllGather, small, 2) == std::vector<std::size_t>{0, 2});
    CHECK(counts(Collective::kAllGatherV, small, 2) == std::vector<std::size_t>{0, 1, 2, 3});
    CHECK(counts(Collective::kBarrier, small, 2) == std::vector<std::size_t>{0});
    const Options eight = parse({"-b", "8", "-e", "64"}).options;  // less than one element for each of four ranks
    CHECK(counts(Collective::kAllGather, eight, 4) == std::vector<std::size_t>{4, 8, 16});
    CHECK(counts(Collective::kAllGather, parse({"-b", "4", "-e", "4"}).options, 4).empty());
}

TEST_CASE("ddp-bench skips a collective for which all sizes are too small, and refuses to have none", "[bench]") {
    const auto parsed = parse({"-c", "all_gather,all_reduce,reduce_scatter", "-b", "8", "-e", "16"}, 5);
    REQUIRE_FALSE(parsed.exit_code);
    CHECK(
        left_out(parsed.options, 5) ==
        "all_gather, reduce_scatter: no size from --min-bytes 8 to --max-bytes 16 has an element of f32 for each of 5 "
        "ranks. Pass --max-bytes 20 or more");
    CHECK(left_out(parsed.options, 4) == "");
    CHECK(parse({"-c", "all_gather", "-b", "8", "-e", "16"}, 5).exit_code == 2);
    CHECK_FALSE(parse({"-c", "all_gather", "-b", "0", "-e", "0"}, 5).exit_code);
    CHECK_FALSE(parse({"-c", "all_gather,barrier", "-b", "8", "-e", "16"}, 5).exit_code);
}

TEST_CASE("rows that were measured before an error are kept", "[bench]") {
    Options options = parse({"-b", "8", "-e", "64", "-n", "10", "-w", "0"}).options;
    const auto [rows, error] = run_until_lost(options, 60);  // a row is 2 x (10 calls, 3 for its figures, a barrier)
    CHECK(rows.size() == 2);
    CHECK(error == "the machine is lost");
    const auto json = boost::json::parse(to_json(rows, "about", 1, error)).as_object();
    CHECK(json.at("error").as_string() == "the machine is lost");
    CHECK(json.at("rows").as_array().size() == 2);
    CHECK(boost::json::parse(to_json({}, "about", 3, "")).as_object().at("ranks").as_int64() == 3);
}

TEST_CASE("ddp-bench refuses what cannot be measured", "[bench]") {
    const auto words = GENERATE(
        std::vector<std::string>{"-c", "all_reduced"}, std::vector<std::string>{"-b", "8k", "-e", "1k"},
        std::vector<std::string>{"-o", "band"}, std::vector<std::string>{"-o", "avg", "-d", "i32"},
        std::vector<std::string>{"-d", "f8"}, std::vector<std::string>{"-n", "0"}, std::vector<std::string>{"-f", "1"},
        std::vector<std::string>{"-b", "-1"}, std::vector<std::string>{"-b", "-8", "-e", "-1"},
        std::vector<std::string>{"-f", "nan"}, std::vector<std::string>{"-r", "-1"},
        std::vector<std::string>{"--backend", "mpi"}, std::vector<std::string>{"surplus"});
    CAPTURE(words);
    CHECK(parse(words).exit_code == 2);
}

TEST_CASE("of an option that is given twice the last one counts, as in scripts that end in \"$@\"", "[bench]") {
    const auto parsed = parse({"-b", "8", "-e", "1k", "-b", "16", "-e", "64", "-c", "barrier"});
    CHECK_FALSE(parsed.exit_code);
    CHECK(parsed.options.min_bytes == 16);
}

TEST_CASE("every collective gives what the pattern expects, and a wrong element is counted", "[bench]") {
    const auto collective = GENERATE(from_range(kAllCollectives));
    const auto dtype = GENERATE(DType::I8, DType::U64, DType::F16, DType::BF16, DType::F32, DType::F64);
    CAPTURE(name_of(collective), to_string(dtype));
    const auto outcomes = run_ranks({.ranks_per_node = {2, 1}}, [&](ddp::Context& context) {
        Options options;
        options.iterations = 2;
        options.warm_up = 1;
        Memory memory(context.world(), 8 * 300, context.rank() == 1, nullptr);
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
                const bool checked = measured.checked == (collective != Collective::kBarrier);
                wrong.push_back(checked ? measured.wrong : 1000);
            }
        }
        return wrong;
    });
    for (const auto& wrong : outcomes) CHECK(wrong == std::vector<std::size_t>(wrong.size(), 0));
}

TEST_CASE("a wrong element is counted", "[bench]") {
    const auto op = GENERATE(ReduceOp::Sum, ReduceOp::Min, ReduceOp::Max, ReduceOp::Product, ReduceOp::BitXor);
    const Call call{.collective = Collective::kAllReduce,
                    .count = 50,
                    .dtype = DType::I32,
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
        fill_input(own, ddp::Buffer(in));
        start(context.world(), own, {ddp::Buffer(in), ddp::Buffer(out)}).wait();
        const std::size_t before = count_wrong(own, ddp::Buffer(out));
        out[7] += 1;
        out[49] -= 1;
        return std::pair{before, count_wrong(own, ddp::Buffer(out))};
    });
    CHECK(wrong == std::vector(2, std::pair{std::size_t{0}, std::size_t{2}}));
}

TEST_CASE("parts of different sizes make up the whole", "[bench]") {
    Call call{.collective = Collective::kScatterV,
              .count = 25,
              .dtype = DType::F32,
              .op = ReduceOp::Sum,
              .root = 1,
              .in_place = false,
              .rank = 2,
              .ranks = 3};
    CHECK(std::vector{call.part(0), call.part(1), call.part(2)} == std::vector<std::size_t>{4, 8, 13});
    CHECK(call.out_count() == 13);
    CHECK(call.in_count() == 0);
    call.collective = Collective::kAllToAllV;
    CHECK(call.in_count() == 25);
    CHECK(call.out_count() == 25);
    call.collective = Collective::kGather;
    CHECK(std::vector{call.part(0), call.part(1), call.part(2)} == std::vector<std::size_t>{8, 8, 8});
}

TEST_CASE("bus bandwidth is nccl-tests'", "[bench]") {
    CHECK(bus_factor(Collective::kAllReduce, 4) == 1.5);
    CHECK(bus_factor(Collective::kBroadcast, 4) == 1);
    CHECK(bus_factor(Collective::kAllToAll, 4) == 0.75);
    CHECK(bus_factor(Collective::kSendRecv, 4) == 1);
    Row row{.call = {.collective = Collective::kAllReduce,
                     .count = 250'000,
                     .dtype = DType::F32,
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

    const auto json = boost::json::parse(to_json({row}, "about", 4, "")).as_object();
    CHECK(json.at("error").is_null());
    const auto& first = json.at("rows").as_array().at(0).as_object();
    CHECK(json.at("ranks").as_int64() == 4);
    CHECK(first.at("out_of_place").is_null());
    CHECK(first.at("in_place").as_object().at("p99_us").as_double() == 900);
    CHECK(first.at("in_place").as_object().at("wrong").as_int64() == 3);
    CHECK(first.at("in_place").as_object().at("mean_us").as_double() == 500);
    CHECK_THAT(table_head(Collective::kAllReduce, ""), Contains(" mean   algbw"));
    row.in_place->us = {.mean = 500};
    const auto queued = boost::json::parse(to_json({row}, "about", 4, "")).as_object();
    CHECK(queued.at("rows").as_array().at(0).as_object().at("in_place").as_object().at("median_us").is_null());
}

TEST_CASE("a row without bytes has a time, but no bandwidth, and counts for no mean", "[bench]") {
    Row empty{.call = {}, .bytes = 0};
    empty.in_place = Measured{.us = {.mean = 5}, .wrong = 0, .checked = true};
    Row full = empty;
    full.bytes = 10'000;
    full.call.collective = Collective::kBroadcast;
    full.call.ranks = 2;
    CHECK_THAT(table_row(empty), Contains("     5.00       -       -      0\n"));
    CHECK_THAT(table_foot({empty, full}), Contains("mean bus bandwidth: 2.00 GB/s"));
    CHECK(table_foot({empty}) == "# wrong values: 0\n");
    const auto json = boost::json::parse(to_json({empty}, "", 2, "")).as_object();
    CHECK(json.at("rows").as_array().at(0).as_object().at("in_place").as_object().at("busbw_gb_s").is_null());
}

TEST_CASE("head and rows of the table have the same columns", "[bench]") {
    const std::string head = table_head(Collective::kReduce, "2 ranks");
    CHECK_THAT(head, Contains("# reduce: 2 ranks"));
    const std::string last = head.substr(head.rfind('\n', head.size() - 2) + 1);
    const Row row{.call = {.collective = Collective::kReduce}, .bytes = 0};
    CHECK(last.size() == table_row(row).size());
}
