#include "common/logging.hpp"

#include <spdlog/spdlog.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>

#include "common/system/process.hpp"
#include "tests/catch.hpp"

namespace {

using ddprun::Pipe;

/// The child: writes more lines than its stderr holds, and one more after a byte from the reader.
[[noreturn]] void talk(const Pipe& console, const Pipe& said, const Pipe& heard) {
    ::dup2(console.write_end.get(), STDERR_FILENO);
    ddprun::init_logging("ddprund", ddprun::LineStart::kTag, ddprun::StuckReader::kDropLine);
    for (int i = 0; i < 5000; ++i) spdlog::info("line {} {}", i, std::string(100, '.'));
    char byte = 0;
    if (::write(said.write_end.get(), &byte, 1) != 1 || ::read(heard.read_end.get(), &byte, 1) != 1) ::_exit(1);
    spdlog::info("the last line");
    ::_exit(0);
}

}  // namespace

TEST_CASE("a program that must never block drops lines that are not read, and reports how many afterwards",
          "[common]") {
    Pipe console = ddprun::make_pipe("for stderr").value();
    const Pipe said = ddprun::make_pipe("from the child").value();
    const Pipe heard = ddprun::make_pipe("to the child").value();
    const pid_t child = ::fork();
    if (child == 0) talk(console, said, heard);
    console.write_end.reset();

    // Nothing is read yet: a child that blocked would never report that it has written everything.
    char byte = 0;
    REQUIRE(::read(said.read_end.get(), &byte, 1) == 1);
    std::string text;
    std::array<char, 65536> buffer{};
    const auto read_some = [&] {
        const ssize_t count = ::read(console.read_end.get(), buffer.data(), buffer.size());
        if (count > 0) text.append(buffer.data(), static_cast<std::size_t>(count));
        return count > 0;
    };
    REQUIRE(read_some());
    REQUIRE(::write(heard.write_end.get(), &byte, 1) == 1);
    while (read_some()) {
    }

    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    CHECK_THAT(text, Catch::StartsWith("[ddprund] line 0 "));
    CHECK_THAT(text, Catch::Contains("lines are missing here: stderr was not read]") &&
                         Catch::EndsWith("[ddprund] the last line\n"));
}
