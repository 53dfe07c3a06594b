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
    CHECK(options.no_overlap);
    CHECK(!options.help);
    CHECK(!options.plan);
    CHECK(options.optimizer == train::Optimizer::kSgd);
    CHECK(!options.sharding);
    CHECK(parse_options({"--optimizer", "adamw"}).optimizer == train::Optimizer::kAdamW);
    const train::Options sharded = parse_options({"--sharding", "grad", "--param-dtype=bf16", "--plan"});
    CHECK(sharded.sharding == ddp::Sharding::GradOp);
    CHECK(sharded.param_dtype == ddp::DType::BF16);
    CHECK(sharded.plan);
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
    CHECK_THROWS_WITH(parse_options({"--plan=x"}), "--plan: this option takes no value. See train --help");
    CHECK_THROWS_WITH(parse_options({"--progress", "loud"}), Contains("'loud' is not plain or none"));
    CHECK_THROWS_WITH(parse_options({"--device", "gpu"}), Contains("'gpu' is not cpu or cuda"));
    CHECK_THROWS_WITH(parse_options({"--optimizer", "adam"}), Contains("'adam' is not sgd or adamw"));
    CHECK_THROWS_WITH(parse_options({"--sharding", "Full"}), Contains("'Full' is not full, grad, optimizer or none"));
    CHECK_THROWS_WITH(parse_options({"--param-dtype", "f64"}), Contains("'f64' is not f32, bf16 or f16"));
}

TEST_CASE("options that exclude each other are named, with the reason and what to do", "[train]") {
    CHECK_THROWS_WITH(parse_options({"--param-dtype", "bf16"}),
                      "--param-dtype: without --sharding no parameters are gathered. Pass --sharding, too");
    CHECK_THROWS_WITH(parse_options({"--plan"}), Contains("Pass --sharding full, grad, optimizer or none, too"));
    CHECK_THROWS_WITH(parse_options({"--sharding", "full", "--device", "cuda"}),
                      Contains("in host memory. Pass --device cpu, or leave out --sharding"));
    CHECK_THROWS_WITH(parse_options({"--sharding", "none", "--no-overlap"}), Contains("Leave out --no-overlap"));
}

TEST_CASE("an argument that is no option, and an option without its value, is named", "[train]") {
    CHECK_THROWS_WITH(parse_options({"--stepz", "10"}), "--stepz: no such option. See train --help");
    CHECK_THROWS_WITH(parse_options({"stray"}), Contains("stray: unexpected argument"));
    CHECK_THROWS_WITH(parse_options({"--data"}), Contains("--data: a value is missing"));
    CHECK_THROWS_AS(parse_options({"--data"}), train::UserError);
}

TEST_CASE("the help has every option", "[train]") {
    for (const std::string name :
         {"--device DEVICE", "--sharding HOW", "--param-dtype TYPE", "--plan", "--optimizer NAME", "--steps N",
          "--global-batch N", "--lr RATE", "--seed N", "--hidden1 N", "--hidden2 N", "--data FILE",
          "--checkpoint-dir DIR", "--checkpoint-every N", "--loss-log FILE", "--no-overlap", "--progress HOW",
          "--help"})
        CHECK_THAT(train::kHelp, Contains("\n  " + name + " "));
}
