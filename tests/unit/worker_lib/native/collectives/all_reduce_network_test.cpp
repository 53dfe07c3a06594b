// All-reduce between nodes by each of its algorithms: all give the bits of the reference.

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/support/all_reduce_cases.hpp"
#include "tests/unit/worker_lib/support/network_rules.hpp"

using namespace ddp;
using namespace ddp::testing;

TEST_CASE("between nodes every algorithm gives the same bits", "[native][unit]") {
    const char* const text = GENERATE(from_range(kRules));
    const Rules rules(text);
    for (const Setting& setting : settings({{1, 1}, {1, 1, 1, 1, 1}, {2, 2}, {1, 3, 2}})) {
        std::vector<Case> cases;
        for (const std::size_t count : awkward_counts(setting.size(), 257)) {
            cases.push_back({DType::F32, ReduceOp::Sum, count});
            cases.push_back({DType::F16, ReduceOp::Avg, count});
            cases.push_back({DType::U8, ReduceOp::Max, count});
        }
        CAPTURE(text, setting.text());
        CHECK(run_cases(setting, cases) == "");
    }
}

TEST_CASE("between nodes long buffers pass through every algorithm in pieces", "[native][unit]") {
    const char* const text = GENERATE(from_range(kRules));
    const Rules rules(text);
    // More pieces than are on their way at a time, the last one cut short: 128 Ki floats or more by parts, 64 Ki else.
    const std::vector<Case> cases{{DType::F32, ReduceOp::Sum, 900'001}, {DType::BF16, ReduceOp::Avg, 700'003}};
    for (const Setting& setting : long_settings({{1, 1}, {1, 1, 1}, {2, 1}})) {
        CAPTURE(text, setting.text());
        CHECK(run_cases(setting, cases) == "");
    }
}

TEST_CASE("between nodes buffers that pass through slots go in more windows than a slot holds", "[native][unit]") {
    const char* const text = GENERATE(from_range(kRules));
    const Rules rules(text);
    const std::vector<Case> cases{{DType::F32, ReduceOp::Sum, 2'700'001}, {DType::BF16, ReduceOp::Avg, 2'500'003}};
    for (const Setting& setting : long_settings({{2, 1}, {2, 2}})) {
        CAPTURE(text, setting.text());
        CHECK(run_cases(setting, cases) == "");
    }
}

TEST_CASE("between nodes any number of sockets gives the same bits", "[native][unit]") {
    const SocketsPerPeer sockets(GENERATE(values<const char*>({"1", "2", "4"})));
    for (const Setting& setting : settings({{1, 1}, {1, 1, 1}, {2, 1}})) {
        std::vector<Case> cases{{DType::F32, ReduceOp::Sum, 900'001}};
        for (const std::size_t count : awkward_counts(setting.size(), 70'001)) {
            cases.push_back({DType::F32, ReduceOp::Sum, count});
            cases.push_back({DType::F16, ReduceOp::Avg, count});
        }
        CAPTURE(setting.text());
        CHECK(run_cases(setting, cases) == "");
    }
}

TEST_CASE("an invalid number of sockets is refused when a group begins", "[native][unit]") {
    const auto* const text = GENERATE(values<const char*>({"0", "9", "-1", "4 ", "four"}));
    const SocketsPerPeer sockets(text);
    const auto outcomes = try_ranks({.ranks_per_node = {1, 1}}, [](Context&) {});
    for (const auto& outcome : outcomes) {
        CHECK_THAT(outcome.text(), Catch::Contains(std::string("DDPRUN_SOCKETS_PER_PEER is '") + text +
                                                   "', expected a whole number from 1 to 8"));
    }
}

TEST_CASE("invalid rules for all-reduce are refused when a group begins", "[native][unit]") {
    const Rules rules("ring:0-max");
    const auto outcomes = try_ranks({.ranks_per_node = {1, 1}}, [](Context&) {});
    for (const auto& outcome : outcomes) {
        CHECK_THAT(outcome.text(), Catch::Contains("DDPRUN_ALLREDUCE is 'ring:0-max': there is no algorithm 'ring'"));
    }
}
