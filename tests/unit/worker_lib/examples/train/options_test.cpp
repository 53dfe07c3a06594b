// The trainer's command line.

#include <limits>
#include <string>

#include "tests/catch.hpp"
#include "worker_lib/examples/train/support/options.hpp"
#include "worker_lib/examples/train/support/user_error.hpp"

using Catch::Contains;
using train::parse_options;

TEST_CASE("options reach the trainer", "[train]") {
    const train::Options options = parse_options({"--data",
                                                  "a",
                                                  "--data",
                                                  "b=c",
                                                  "--steps",
                                                  "7",
                                                  "--global-batch=64",
                                                  "--seed",
                                                  "18446744073709551615",
                                                  "--hidden1",
                                                  "9",
                                                  "--progress",
                                                  "none",
                                                  "--checkpoint-dir",
                                                  "c",
                                                  "--loss-log",
                                                  "l",
                                                  "--lr",
                                                  "0.5",
                                                  "--no-overlap",
                                                  "--checkpoint-every=0"});
    CHECK(options.data == std::vector<std::filesystem::path>{"a", "b=c"});
    CHECK(options.steps == 7);
    CHECK(options.global_batch == 64);
    CHECK(options.seed == std::numeric_limits<std::uint64_t>::max());
    CHECK(options.shape.hidden1 == 9);
    CHECK(options.rate == 0.5f);
    CHECK(!options.progress);
    CHECK(options.checkpoint_dir == "c");
    CHECK(options.checkpoint_every == 0);
    CHECK(options.loss_log == "l");
    CHECK(!options.overlap);
    CHECK(!options.help);
    CHECK(parse_options({"--help"}).help);
    CHECK(parse_options({"--checkpoint-dir", "c"}).checkpoint_every == 50);  // the directory alone is enough
}

TEST_CASE("a bad value is quoted, with what is expected", "[train]") {
    for (const std::string bad : {"", "0", "-3", "1e3", "5x", "1.5", " 2", "1073741825"}) {
        CHECK_THROWS_WITH(parse_options({"--steps", bad}),
                          "--steps: '" + bad + "' is not a whole number from 1 to 1073741824. See train --help");
    }
    for (const std::string bad : {"0", "-1", "nan", "inf", "x", ""}) {
        CHECK_THROWS_WITH(parse_options({"--lr=" + bad}), Contains("--lr: '" + bad + "' is not a positive number"));
    }
    CHECK_THROWS_WITH(parse_options({"--checkpoint-every", "10"}),
                      "--checkpoint-every: there is no directory to save to. Pass --checkpoint-dir, too");
    CHECK_THROWS_WITH(parse_options({"--no-overlap=1"}), "--no-overlap: this option takes no value. See train --help");
    CHECK_THROWS_WITH(parse_options({"--progress", "loud"}), Contains("'loud' is not plain or none"));
}

TEST_CASE("an argument that is no option, and an option without its value, is named", "[train]") {
    CHECK_THROWS_WITH(parse_options({"--stepz", "10"}), "--stepz: no such option. See train --help");
    CHECK_THROWS_WITH(parse_options({"stray"}), Contains("stray: unexpected argument"));
    CHECK_THROWS_WITH(parse_options({"--data"}), Contains("--data: a value is missing"));
    CHECK_THROWS_AS(parse_options({"--data"}), train::UserError);
}

TEST_CASE("the help has every option", "[train]") {
    for (const std::string name : {"--steps N", "--global-batch N", "--lr RATE", "--seed N", "--hidden1 N",
                                   "--hidden2 N", "--data FILE", "--checkpoint-dir DIR", "--checkpoint-every N",
                                   "--loss-log FILE", "--no-overlap", "--progress HOW", "--help"})
        CHECK_THAT(train::kHelp, Contains("\n  " + name + " "));
}
