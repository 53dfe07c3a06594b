#include "agent/output/pseudo_terminal.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>

#include "agent/output/worker_stream.hpp"
#include "tests/catch.hpp"
#include "tests/unit/agent/workers/processes.hpp"

using namespace ddprun;
using namespace ddprun::agent;
using namespace agent_test;

namespace {

void print(int fd, std::string_view text) {
    REQUIRE(::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
}

std::string read_some(int fd) {
    std::array<char, 100> buffer{};
    const ssize_t size = ::read(fd, buffer.data(), buffer.size());
    return {buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0))};
}

winsize size_of(int fd) {
    winsize size{};
    REQUIRE(::ioctl(fd, TIOCGWINSZ, &size) == 0);
    return size;
}

}  // namespace

TEST_CASE("a worker's terminal has the columns that the label leaves, and twenty if that is less", "[agent]") {
    const auto columns = [](std::string_view label, unsigned short of) {
        return room_behind(label, {24, of, 0, 0}).ws_col;
    };
    CHECK(columns("", 80) == 80);
    CHECK(columns("[0] ", 80) == 76);
    CHECK(columns("[größe:0] ", 80) == 70);
    CHECK(columns(std::string(70, 'x'), 80) == 20);
    CHECK(columns(std::string(70, 'x'), 15) == 15);
    CHECK(columns("[0] ", 0) == 0);
    CHECK(room_behind("[0] ", {24, 80, 0, 0}).ws_row == 24);
}

TEST_CASE("a pseudo terminal passes on bytes unchanged, and can only be written to", "[agent]") {
    const PseudoTerminal terminal = make_pseudo_terminal({24, 80, 0, 0}).value();
    CHECK(::isatty(terminal.write_end.get()) == 1);
    print(terminal.write_end.get(), "one\ntwo\r\n\r 10%");
    CHECK(read_some(terminal.read_end.get()) == "one\ntwo\r\n\r 10%");
    char byte = 0;
    CHECK(::read(terminal.write_end.get(), &byte, 1) == -1);  // it would wait for ever
    CHECK(errno == EBADF);
}

TEST_CASE("both ends of a pseudo terminal get another size, a pipe has none", "[agent]") {
    const PseudoTerminal terminal = make_pseudo_terminal({24, 80, 0, 0}).value();
    CHECK(size_of(terminal.write_end.get()).ws_col == 80);
    CHECK_FALSE(resize(terminal.read_end.get(), {24, 80, 0, 0}));
    CHECK(resize(terminal.read_end.get(), {30, 100, 0, 0}));
    CHECK(size_of(terminal.write_end.get()).ws_row == 30);
    CHECK(size_of(terminal.write_end.get()).ws_col == 100);
    const Pipe pipe;
    CHECK_FALSE(resize(pipe.read_end.get(), {30, 100, 0, 0}));
}

TEST_CASE("output to a pseudo terminal is read until its last writer ends, which may not be the worker", "[agent]") {
    boost::asio::io_context io{1};
    const Pipe screen;
    Console console(io, screen.write_end.get(), screen.write_end.get());
    PseudoTerminal terminal = make_pseudo_terminal({}).value();
    UniqueFd grandchild(::fcntl(terminal.write_end.get(), F_DUPFD_CLOEXEC, 0));
    Route route;
    route.console = &console;
    const auto stream = std::make_shared<WorkerStream>(io, std::move(terminal.read_end), std::move(route));
    stream->start();
    print(terminal.write_end.get(), "worker\n");
    terminal.write_end.reset();
    print(grandchild.get(), "grandchild\nno end");
    grandchild.reset();
    io.run_for(std::chrono::seconds(20));  // ends when the stream waits for nothing more
    CHECK(io.stopped());
    CHECK(read_some(screen.read_end.get()) == "worker\ngrandchild\nno end");
    stream->finish();
}
