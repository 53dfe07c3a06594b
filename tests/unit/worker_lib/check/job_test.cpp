// The whole check among ranks that are threads of this test, and its command line.

#include <boost/json.hpp>

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"
#include "worker_lib/check/measure.hpp"
#include "worker_lib/check/options.hpp"
#include "worker_lib/check/run.hpp"

using namespace ddp::check;
using Catch::Contains;
using ddp::testing::run_ranks;

TEST_CASE("every rank of three nodes takes part in the check", "[check][unit]") {
    const auto reports =
        run_ranks({.ranks_per_node = {2, 1, 3}}, [](ddp::Context& context) { return check_job(context); });
    REQUIRE(reports.size() == 6);
    INFO(reports[0].table << reports[0].verdict);
    CHECK_THAT(reports[0].table, Catch::StartsWith("3 nodes, 6 ranks") && Contains("pairs of nodes: 3 (all)") &&
                                     Contains("over 6 ranks on CPUs: all sums are right"));
    const auto json = boost::json::parse(reports[0].json).as_object();
    CHECK(json.at("links").as_array().size() == 3);
    CHECK(json.at("nodes").as_array().size() == 3);
    CHECK(json.at("nodes").at(2).at("first_rank") == 3);
    CHECK(json.at("all_reduce").at("wrong").as_array().empty());
    CHECK(reports[5].table.empty());
}

TEST_CASE("one rank alone is a check, too", "[check][unit]") {
    const auto reports = run_ranks({}, [](ddp::Context& context) { return check_job(context); });
    CHECK_THAT(reports[0].table, Catch::StartsWith("1 node, 1 rank") && Contains("one rank, nothing to sum"));
}

TEST_CASE("all sums of an all-reduce that works are right", "[check][unit]") {
    const auto wrong = run_ranks({.ranks_per_node = {2}}, [](ddp::Context& context) {
        RankResult result;
        verify_all_reduce(context.world(), result);
        return result.wrong_integers + result.wrong_floats;
    });
    CHECK(wrong == std::vector<std::int64_t>{0, 0});
}

TEST_CASE("the command line of ddp-check", "[check][unit]") {
    CHECK(parse_options({}).json_file.empty());
    CHECK(parse_options({"--json", "x"}).json_file == "x");
    CHECK(parse_options({"--json=-"}).json_file == "-");
    CHECK_THAT(parse_options({"--help"}).print, Contains("--json FILE"));
    CHECK_THAT(parse_options({"--version"}).print, Catch::StartsWith("ddp-check "));
    CHECK(parse_options({"--json"}).error == "--json: pass the name of a file, or - for stdout");
    CHECK(parse_options({"--json="}).error == "--json: pass the name of a file, or - for stdout");
    CHECK(parse_options({"--nnodes", "2"}).error == "unexpected argument '--nnodes'");
}
