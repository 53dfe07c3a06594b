#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <limits>

#include "tests/catch.hpp"
#include "tests/temporary_directory.hpp"
#include "train/loss_log.hpp"
#include "train/options.hpp"
#include "train/progress.hpp"
#include "train/text.hpp"
#include "train/trainer.hpp"
#include "train/user_error.hpp"

using Catch::Contains;

namespace {

/// The exit code, or nothing if training would start. Quiet: only a rank 0 speaks.
std::optional<int> parse(std::vector<const char*> arguments, train::Options& options) {
    ::setenv("RANK", "1", 1);
    arguments.insert(arguments.begin(), "train");
    const auto result = train::parse_options(static_cast<int>(arguments.size()), arguments.data(), options);
    ::unsetenv("RANK");
    return result;
}

}  // namespace

TEST_CASE("options reach the trainer", "[train]") {
    train::Options options;
    REQUIRE_FALSE(parse({"--data",
                         "a",
                         "b",
                         "--steps",
                         "7",
                         "--global-batch=64",
                         "--seed",
                         "18446744073709551615",
                         "--hidden1",
                         "9",
                         "--progress",
                         "plain",
                         "--checkpoint-dir",
                         "c",
                         "--loss-log",
                         "l",
                         "--lr",
                         "0.5",
                         "--threads",
                         "2",
                         "--no_overlap"},
                        options));
    CHECK(options.data == std::vector<std::filesystem::path>{"a", "b"});
    CHECK(options.steps == 7);
    CHECK(options.global_batch == 64);
    CHECK(options.seed == std::numeric_limits<std::uint64_t>::max());
    CHECK(options.shape.hidden1 == 9);
    CHECK(options.progress == train::ProgressStyle::kPlain);
    CHECK(options.checkpoint_dir == "c");
    CHECK(options.checkpoint_every == 50);  // the directory alone is enough
    CHECK(options.loss_log == "l");
    CHECK(options.threads == 2);
    CHECK(!options.overlap);
}

TEST_CASE("checkpoints can be switched off although there is a directory", "[train]") {
    train::Options options;
    REQUIRE_FALSE(parse({"--checkpoint-dir", "c", "--checkpoint-every", "0"}, options));
    CHECK(options.checkpoint_every == 0);
}

TEST_CASE("bad options end the program with exit code 2, help with 0", "[train]") {
    train::Options options;
    CHECK(parse({"--steps", "0"}, options) == 2);
    CHECK(parse({"--steps", "-1"}, options) == 2);
    CHECK(parse({"--steps", "many"}, options) == 2);
    CHECK(parse({"--global-batch", "0"}, options) == 2);
    CHECK(parse({"--lr", "-0.1"}, options) == 2);
    CHECK(parse({"--progress", "loud"}, options) == 2);
    CHECK(parse({"--no-overlap=maybe"}, options) == 2);
    CHECK(parse({"--checkpoint-every", "5"}, options) == 2);
    CHECK(parse({"--unknown"}, options) == 2);
    CHECK(parse({"stray"}, options) == 2);
    CHECK(parse({"--data"}, options) == 2);
    CHECK(parse({"--checkpoint-every", "0"}, options) == std::nullopt);  // never: that needs no directory
    CHECK(parse({"--help"}, options) == 0);
}

TEST_CASE("the text is the bytes of the files, one after another", "[train]") {
    const TemporaryDirectory directory;
    write_file(directory.path() / "a", std::string("x\0y", 3));
    write_file(directory.path() / "b", "z");
    const train::Text text = train::read_text({directory.path() / "b", directory.path() / "a"});
    CHECK(text.bytes == std::vector<std::uint8_t>{'z', 'x', 0, 'y'});
    CHECK(text.files == 2);
    CHECK(text.fingerprint != train::read_text({directory.path() / "a", directory.path() / "b"}).fingerprint);
}

TEST_CASE("data that cannot be read is named, with the cause and what to do", "[train]") {
    const TemporaryDirectory directory;
    CHECK_THROWS_WITH(train::read_text({directory.path() / "absent"}),
                      Contains("absent") && Contains("No such file") && Contains("--data"));
    CHECK_THROWS_WITH(train::read_text({directory.path()}), Contains("directory"));
    CHECK_THROWS_AS(train::read_text({directory.path()}), train::UserError);
    const auto pipe = directory.path() / "pipe";
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    for (const auto& endless : {std::filesystem::path("/dev/zero"), pipe}) {
        CHECK_THROWS_WITH(train::read_text({endless}),
                          Contains(endless.string()) && Contains("not a regular file") && Contains("--data"));
    }
}

TEST_CASE("the default text exists and names no file twice", "[train]") {
    const auto files = train::default_files();
    for (const auto& file : files) CHECK(file == std::filesystem::canonical(file));
    CHECK(std::set(files.begin(), files.end()).size() == files.size());
    CHECK(train::read_text(files).bytes.size() > 100'000);
}

TEST_CASE("a loss log continues behind the checkpoint and forgets what came after it", "[train]") {
    const TemporaryDirectory directory;
    const auto path = directory.path() / "loss";
    {
        train::LossLog log(path, 0);
        log.write(1, 5.5);
        log.write(2, 1.0 / 3);
        log.write(3, 4.5);
    }
    write_file(path, read_file(path) + "4 4.");  // killed while writing
    {
        train::LossLog log(path, 2);
        log.write(3, 4.25);
    }
    CHECK(read_file(path) == "1 5.5\n2 0.33333333333333331\n3 4.25\n");
    { const train::LossLog fresh(path, 0); }
    CHECK(read_file(path).empty());
    CHECK_THROWS_WITH(train::LossLog(directory.path() / "no" / "where", 0),
                      Contains("No such file") && Contains("--loss-log"));
}

TEST_CASE("a loss log that is not a regular file is written to, never read", "[train]") {
    for (const char* device : {"/dev/zero", "/dev/null"}) {
        train::LossLog log(device, 7);
        CHECK_NOTHROW(log.write(8, 1.5));
    }
    train::LossLog full("/dev/full", 7);
    CHECK_THROWS_WITH(full.write(8, 1.5),
                      "cannot write loss log /dev/full: No space left on device. Make room there, "
                      "or pass another --loss-log");

    const TemporaryDirectory directory;
    const auto path = directory.path() / "pipe";
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
    CHECK_THROWS_WITH(train::LossLog(path, 7), Contains("this pipe has no reader") && Contains("Start the reader"));
    const int reader = ::open(path.c_str(), O_RDONLY | O_NONBLOCK);
    REQUIRE(reader >= 0);
    train::LossLog(path, 7).write(8, 1.5);
    char line[16];
    CHECK(std::string(line, static_cast<std::size_t>(::read(reader, line, sizeof line))) == "8 1.5\n");
    ::close(reader);
}

TEST_CASE("progress shows step, loss, speed and time left", "[train]") {
    const train::StepReport report{.step = 30,
                                   .last_step = 120,
                                   .steps_done = 20,
                                   .loss = 2.0,
                                   .samples = 10240,
                                   .elapsed = std::chrono::seconds(10),
                                   .waiting = std::chrono::seconds(1)};
    CHECK(train::describe(report) ==
          "step 30/120  loss 2.0000  2.89 bits/byte  1024 samples/s  rank 0 waits 10 %  0:45 left");
    CHECK(train::describe_with_bar(report, 90) ==
          "[###-----------] 30/120  0:45 left  loss 2.00 = 2.89 bits/byte  1024 samples/s  waits 10 %");
    CHECK(train::describe_with_bar(report, 79) ==
          "[---] 30/120  0:45 left  loss 2.00 = 2.89 bits/byte  1024 samples/s  waits 10 %");
    CHECK(train::describe_with_bar(report, 200).size() < 110);
    CHECK(train::describe_with_bar(report, 20) == "[---] 30/120  0:45 l");
    CHECK(train::describe_with_bar({.step = 120, .last_step = 120}, 5) == "[###]");
    CHECK_THAT(train::describe({}), Contains("0 samples/s"));
}

TEST_CASE("the summary is one line of valid JSON, whatever the numbers are", "[train]") {
    train::Summary summary{.world_size = 8,
                           .steps = 120,
                           .loss_first = 5.5,
                           .loss_last = 2.25,
                           .samples_per_s = 1234.56,
                           .exposed_ms = 0.12345,
                           .restarts = 1};
    CHECK(train::to_json(summary) == R"({"world_size":8,"steps":120,"loss_first":5.5,"loss_last":2.25,)"
                                     R"("samples_per_s":1234.6,"exposed_ms":0.123,"restarts":1})");
    summary.loss_last = std::numeric_limits<double>::quiet_NaN();
    summary.samples_per_s = std::numeric_limits<double>::infinity();
    CHECK_THAT(train::to_json(summary), Contains(R"("loss_last":null,"samples_per_s":null)"));
}
