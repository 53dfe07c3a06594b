#include "common/logging.hpp"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>

#include "common/unique_fd.hpp"
#include "tests/catch.hpp"

namespace {

struct Pipe {
    Pipe() {
        int ends[2];
        REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
        reader = ddprun::UniqueFd(ends[0]);
        writer = ddprun::UniqueFd(ends[1]);
    }
    ddprun::UniqueFd reader;
    ddprun::UniqueFd writer;
};

/// The child: more lines than its stderr holds, and one more when it is told that somebody has read.
[[noreturn]] void talk(const Pipe& console, const Pipe& said, const Pipe& heard) {
    ::dup2(console.writer.get(), STDERR_FILENO);
    ddprun::init_logging("ddprund", ddprun::StuckReader::kDropLine);
    for (int i = 0; i < 5000; ++i) spdlog::info("line {} {}", i, std::string(100, '.'));
    char byte = 0;
    if (::write(said.writer.get(), &byte, 1) != 1 || ::read(heard.reader.get(), &byte, 1) != 1) ::_exit(1);
    spdlog::info("the last line");
    ::_exit(0);
}

}  // namespace

TEST_CASE("a program that must never stand still drops lines that nobody reads, and says so afterwards", "[common]") {
    Pipe console;
    const Pipe said;
    const Pipe heard;
    const pid_t child = ::fork();
    if (child == 0) talk(console, said, heard);
    console.writer.reset();

    // Nobody reads yet. A child that blocked would never get so far as to say that it has written everything.
    char byte = 0;
    REQUIRE(::read(said.reader.get(), &byte, 1) == 1);
    std::string text;
    std::array<char, 65536> buffer{};
    const auto read_some = [&] {
        const ssize_t count = ::read(console.reader.get(), buffer.data(), buffer.size());
        if (count > 0) text.append(buffer.data(), static_cast<std::size_t>(count));
        return count > 0;
    };
    REQUIRE(read_some());
    REQUIRE(::write(heard.writer.get(), &byte, 1) == 1);
    while (read_some()) {}

    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    CHECK_THAT(text, Catch::StartsWith("[ddprund] line 0 "));
    CHECK_THAT(text, Catch::Contains("lines were lost here") && Catch::EndsWith("[ddprund] the last line\n"));
}
