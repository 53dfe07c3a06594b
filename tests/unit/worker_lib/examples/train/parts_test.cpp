#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/catch.hpp"
#include "tests/temporary_directory.hpp"
#include "worker_lib/examples/train/support/data.hpp"
#include "worker_lib/examples/train/support/loss_log.hpp"

using Catch::Contains;

TEST_CASE("the text is the bytes of the files, one after another", "[train]") {
    const TemporaryDirectory directory;
    write_file(directory.path() / "a", std::string("x\0y", 3));
    write_file(directory.path() / "b", "z");
    const train::Text text = train::read_text({directory.path() / "b", directory.path() / "a"});
    CHECK(text.bytes == std::vector<std::uint8_t>{'z', 'x', 0, 'y'});
    CHECK(text.fingerprint != train::read_text({directory.path() / "a", directory.path() / "b"}).fingerprint);
}

TEST_CASE("data that cannot be read is named, with the cause and what to do", "[train]") {
    const TemporaryDirectory directory;
    CHECK_THROWS_WITH(train::read_text({directory.path() / "absent"}),
                      Contains("absent") && Contains("No such file") && Contains("--data"));
    CHECK_THROWS_AS(train::read_text({directory.path()}), train::UserError);
    const auto pipe = directory.path() / "pipe";
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    for (const auto& other : {std::filesystem::path("/dev/zero"), pipe, directory.path()}) {
        CHECK_THROWS_WITH(train::read_text({other}),
                          Contains(other.string()) && Contains("not a regular file") && Contains("--data"));
    }
}

TEST_CASE("the default text exists", "[train]") { CHECK(train::read_text({}).bytes.size() > 100'000); }

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

TEST_CASE("without a path there is no loss log", "[train]") { CHECK_NOTHROW(train::LossLog("", 0).write(1, 5.5)); }

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
    CHECK_THROWS_WITH(train::LossLog(path, 7), Contains("this pipe has no reader. Start its reader first"));
    const int reader = ::open(path.c_str(), O_RDONLY | O_NONBLOCK);
    REQUIRE(reader >= 0);
    train::LossLog(path, 7).write(8, 1.5);
    char line[16];
    CHECK(std::string(line, static_cast<std::size_t>(::read(reader, line, sizeof line))) == "8 1.5\n");
    ::close(reader);
}
