// The trainer's messages about a wrong command line.

#include <limits>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "train/option_checks.hpp"
#include "train/options.hpp"

using namespace train;
using Words = std::vector<std::string>;

TEST_CASE("names of options take dashes and underscores, values keep theirs", "[train]") {
    const std::vector<const char*> typed{"train", "--global_batch=8", "--loss_log=a_b", "--data", "my_book.txt", "-_"};
    CHECK(with_dashes(static_cast<int>(typed.size()), typed.data()) ==
          Words{"--global-batch=8", "--loss-log=a_b", "--data", "my_book.txt", "-_"});

    Options options;
    const std::vector<const char*> line{"train", "--global_batch", "64", "--checkpoint_dir=c_d"};
    REQUIRE_FALSE(parse_options(static_cast<int>(line.size()), line.data(), options));
    CHECK(options.global_batch == 64);
    CHECK(options.checkpoint_dir == "c_d");
}

TEST_CASE("an unknown option is named, with the one that it resembles", "[train]") {
    const Words known{"--steps", "--global-batch", "--seed", "--lr"};
    CHECK(complain_about({"--step", "10"}, known) == "--step: no such option. Did you mean --steps?");
    CHECK(complain_about({"--globalbatch=4"}, known) == "--globalbatch: no such option. Did you mean --global-batch?");
    CHECK(complain_about({"10", "--batch", "4"}, known) == "--batch: no such option");
    CHECK(complain_about({"-x"}, known) == "-x: no such option");
    CHECK(complain_about({"stray"}, known) == "unexpected argument 'stray'");
}

TEST_CASE("a bad value is quoted, with what is expected", "[train]") {
    CHECK(check_whole_number("7", 1, 8) == "");
    CHECK(check_whole_number("18446744073709551615", 0, std::numeric_limits<std::uint64_t>::max()) == "");
    for (const std::string bad : {"", "0", "9", "-3", "1e3", "5x", "1.5", " 2"}) {
        CHECK(check_whole_number(bad, 1, 8) == "'" + bad + "' is not a whole number from 1 to 8");
    }
    CHECK(check_positive("0.5") == "");
    for (const std::string bad : {"0", "-1", "nan", "inf", "x", ""}) {
        CHECK(check_positive(bad) == "'" + bad + "' is not a positive number");
    }
    CHECK(check_one_of("a", Words{"a", "b"}) == "");
    CHECK(check_one_of("c", Words{"a", "b"}) == "'c' is not one of a, b");
}
