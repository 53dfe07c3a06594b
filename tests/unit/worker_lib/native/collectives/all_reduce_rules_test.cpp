// AllReduceRules: the algorithm of all-reduce between nodes.

#include "worker_lib/src/native/collectives/all_reduce_rules.hpp"

#include <string>
#include <utility>
#include <vector>

#include "ddp/error.hpp"
#include "tests/catch.hpp"

using namespace ddp;
using namespace ddp::detail;

namespace {

std::string choice(const AllReduceRules& rules, std::size_t bytes, std::size_t nodes) {
    return std::string(to_string(rules.choose(bytes, nodes)));
}

}  // namespace

TEST_CASE("small buffers take few steps, large ones few bytes", "[native][unit]") {
    const auto usual = AllReduceRules::parse(std::nullopt);
    CHECK(usual.text() == "usual");
    CHECK(choice(usual, 0, 2) == "direct");
    CHECK(choice(usual, 8, 3) == "direct");
    CHECK(choice(usual, 8, 9) == "rd");
    CHECK(choice(usual, 25u << 20, 2) == "scatter");
    CHECK(choice(usual, 25u << 20, 9) == "scatter");
    CHECK(choice(usual, 8, 100'000) == "scatter");
}

TEST_CASE("rules of the user's own", "[native][unit]") {
    const auto rules = AllReduceRules::parse("rd:0-32768;direct:32769-65536;scatter:65537-max");
    CHECK(rules.text() == "rd:0-32768;direct:32769-65536;scatter:65537-max");
    CHECK(choice(rules, 0, 2) == "rd");
    CHECK(choice(rules, 32768, 2) == "rd");
    CHECK(choice(rules, 32769, 500) == "direct");
    CHECK(choice(rules, 65536, 2) == "direct");
    CHECK(choice(rules, 65537, 2) == "scatter");
    CHECK(AllReduceRules::parse("").text() == "usual");
    CHECK(AllReduceRules::parse("rd:0-10;rd:11-max;").text() == "rd:0-10;rd:11-max");
}

TEST_CASE("the error for invalid rules says why", "[native][unit]") {
    const auto wrong = GENERATE(values<std::pair<const char*, const char*>>(
        {{"ring:0-max", "there is no algorithm 'ring'; there are direct, rd and scatter"},
         {"rd", "'' is not a number of bytes"},
         {"rd:0-1k;scatter:1001-max", "'1k' is not a number of bytes"},
         {"rd:-max", "'' is not a number of bytes"},
         {"rd:0-99999999999999999999", "is not a number of bytes"},
         {"rd:1-max", "'rd:1-max' should begin at 0"},
         {"rd:0-10;scatter:12-max", "'scatter:12-max' should begin at 11"},
         {"rd:0-max;scatter:11-max", "'scatter:11-max' comes after max"},
         {"rd:0-10;scatter:11-9", "ends before it begins"},
         {"rd:0-10", "sizes from 11 on have no algorithm"}}));
    CAPTURE(wrong.first);
    CHECK_THROWS_WITH(AllReduceRules::parse(wrong.first),
                      Catch::Contains(std::string("DDPRUN_ALLREDUCE is '") + wrong.first) &&
                          Catch::Contains(wrong.second) && Catch::Contains("Expected for example rd:0-32768;"));
    CHECK_THROWS_AS(AllReduceRules::parse(wrong.first), Error);
}
