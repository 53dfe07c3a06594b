// Several agents that write to one pipe, like the emulated nodes of one machine: every line stays whole.
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <unistd.h>

#include <csignal>
#include <map>
#include <thread>

#include "agent/output/console.hpp"
#include "tests/catch.hpp"
#include "tests/unit/agent/workers/processes.hpp"

using namespace ddprun;
using namespace ddprun::agent;
using namespace agent_test;
using Stream = Console::Stream;

namespace {

constexpr int kLines = 60;

/// Returns line `i` of a writer: 100 bytes to 20 KiB of its letter, so that some lines are longer than PIPE_BUF.
std::string line_of(char letter, int i) {
    const auto bytes = static_cast<std::size_t>(i % 3 == 0 ? 20 << 10 : 100 + i * 97);
    return std::string(bytes, letter) + "\n";
}

/// Starts a process with a console of its own on `fd`, which writes its lines to stdout and stderr alternately.
pid_t start_writer(char letter, int fd) {
    const pid_t pid = fork_flushed();
    if (pid != 0) return pid;
    boost::asio::io_context io;
    Console console(io, fd, fd);
    for (int i = 0; i < kLines; ++i) {
        console.write(i % 2 == 0 ? Stream::kOut : Stream::kErr, 0, {line_of(letter, i)});
        io.poll();
        io.restart();
    }
    console.drain();
    ::_exit(0);
}

/// Reads slowly until end-of-file, so that the pipe is full most of the time.
std::string read_slowly(int fd) {
    std::string text;
    std::string buffer(7000, '\0');
    for (ssize_t size; (size = ::read(fd, buffer.data(), buffer.size())) > 0;) {
        text.append(buffer, 0, static_cast<std::size_t>(size));
        std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    return text;
}

}  // namespace

TEST_CASE("lines of several agents on one full pipe stay whole, and those of each agent in order", "[agent]") {
    Pipe pipe;
    std::vector<pid_t> writers;
    for (const char letter : {'a', 'b', 'c', 'd'}) writers.push_back(start_writer(letter, pipe.write_end.get()));
    pipe.write_end.reset();
    const std::string text = read_slowly(pipe.read_end.get());
    for (const pid_t writer : writers) CHECK(wait_for(writer).success());

    std::map<char, int> seen;
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = text.find('\n', begin);
        REQUIRE(end != std::string::npos);
        const std::string line = text.substr(begin, end + 1 - begin);
        INFO("line of " << line.size() << " bytes that begins with " << line[0]);
        REQUIRE((line == line_of(line[0], seen[line[0]]++)));
        begin = end + 1;
    }
    for (const char letter : {'a', 'b', 'c', 'd'}) CHECK(seen[letter] == kLines);
}

TEST_CASE("an agent that is stopped in the middle of a line delays the others only for a moment", "[agent]") {
    const Pipe pipe;
    const UniqueFd other(
        ::open(("/proc/self/fd/" + std::to_string(pipe.write_end.get())).c_str(), O_WRONLY | O_CLOEXEC));
    REQUIRE(::flock(other.get(), LOCK_EX) == 0);  // as a process that SIGSTOP has stopped leaves it
    boost::asio::io_context io;
    Console console(io, pipe.write_end.get(), pipe.write_end.get());
    console.write(Stream::kOut, 0, {"alive\n"});
    pollfd readable{pipe.read_end.get(), POLLIN, 0};
    CHECK(::poll(&readable, 1, 0) == 0);  // first it waits for the lock
    REQUIRE(eventually([&] {
        io.restart();
        io.run_for(std::chrono::milliseconds(10));
        return ::poll(&readable, 1, 0) == 1;
    }));
    CHECK(read_line(pipe.read_end.get()) == "alive");
}

TEST_CASE("no process continues a line that another one has left open, and its rest gets the label again", "[agent]") {
    const Pipe pipe;
    boost::asio::io_context io;
    const UniqueFd memory = SharedLines::make();
    REQUIRE(memory);
    Console first(io, pipe.write_end.get(), pipe.write_end.get(), SharedLines(memory.get(), 1));
    Console second(io, pipe.write_end.get(), pipe.write_end.get(), SharedLines(memory.get(), 2));
    first.write(Stream::kOut, 0, {"(Pdb) "}, "[0] ");
    first.write(Stream::kOut, 0, {"p x", false}, "[0] ");
    second.write(Stream::kErr, 0, {"other\n"}, "[1] ");
    second.write(Stream::kOut, 0, {"more\n"}, "[1] ");
    first.write(Stream::kOut, 0, {"42\n", false}, "[0] ");
    second.write(Stream::kOut, 0, {"\r 10%"}, "[1] ");
    first.write(Stream::kOut, 0, {"\r 20%"}, "[0] ");  // the bars of two workers share a line
    first.write(Stream::kOut, 0, {"\n", false}, "[0] ");
    second.write(Stream::kOut, 0, {"\r 30%"}, "[1] ");
    std::string shown(1000, '\0');
    const ssize_t size = ::read(pipe.read_end.get(), shown.data(), shown.size());
    shown.resize(static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
    CHECK(shown == "[0] (Pdb) p x\n[1] other\n[1] more\n[0] 42\n\r[1]  10%\r[0]  20%\n\r[1]  30%");
}

TEST_CASE("stdout and stderr in one file keep their order, and neither continues the other's open line", "[agent]") {
    const Pipe pipe;
    boost::asio::io_context io;
    Console console(io, pipe.write_end.get(), pipe.write_end.get());
    std::string big(100'000, 'x');
    big += '\n';
    console.write(Stream::kOut, 0, {big});  // more than the pipe takes
    console.write(Stream::kErr, 0, {"error\n"});
    console.write(Stream::kOut, 0, {"\r 50%"});
    console.write(Stream::kErr, 0, {"warning\n"});
    const std::string expected = big + "error\n\r 50%\nwarning\n";
    std::string shown;
    ::fcntl(pipe.read_end.get(), F_SETFL, O_NONBLOCK);
    CHECK(eventually([&] {
        std::string part(1 << 20, '\0');
        const ssize_t size = ::read(pipe.read_end.get(), part.data(), part.size());
        shown.append(part, 0, static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
        io.restart();
        io.run_for(std::chrono::milliseconds(5));
        return shown.size() >= expected.size();
    }));
    CHECK((shown == expected));
}
