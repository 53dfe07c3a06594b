#include "agent/output/console.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>

#include "agent/output/worker_stream.hpp"
#include "tests/catch.hpp"
#include "tests/machine_pauses.hpp"
#include "tests/temporary_directory.hpp"
#include "tests/unit/agent/workers/processes.hpp"

using namespace ddprun;
using namespace ddprun::agent;
using namespace agent_test;
using Stream = Console::Stream;

namespace {

/// A console whose two ends are pipes of the test.
struct Screen {
    boost::asio::io_context io{1};
    Pipe out;
    Pipe err;
    Console console{io, out.write_end.get(), err.write_end.get()};

    /// Returns the bytes that the reader of stdout has got so far.
    [[nodiscard]] std::string shown() const {
        std::string text(1 << 20, '\0');
        ::fcntl(out.read_end.get(), F_SETFL, O_NONBLOCK);
        const ssize_t size = ::read(out.read_end.get(), text.data(), text.size());
        text.resize(static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
        return text;
    }
};

}  // namespace

TEST_CASE("segments reach the stream they were written to, labels begin lines", "[agent]") {
    Screen s;
    s.console.write(Stream::kOut, 0, {"plain\n"});
    s.console.write(Stream::kOut, 0, {"half "}, "[h:0] ");
    s.console.write(Stream::kOut, 0, {"line\n", false}, "[h:0] ");
    s.console.write(Stream::kOut, 0, {"\r 10%"}, "[h:0] ");
    CHECK(s.shown() == "plain\n[h:0] half line\n\r[h:0]  10%");
    s.console.write(Stream::kErr, 0, {"error\n"});
    CHECK(read_line(s.err.read_end.get()) == "error");
}

TEST_CASE("another worker's line never continues an open one", "[agent]") {
    Screen s;
    s.console.write(Stream::kOut, 0, {"open"});
    s.console.write(Stream::kOut, 1, {"other\n"});
    s.console.write(Stream::kOut, 0, {"\r 10%"});
    s.console.write(Stream::kOut, 0, {"\r 20%"});
    s.console.write(Stream::kOut, 1, {"\r 30%"});
    s.console.write(Stream::kOut, 1, {"\n", false});
    CHECK(s.shown() == "open\nother\n\r 10%\r 20%\r 30%\n");
}

TEST_CASE("progress bars of two workers share a line, and leave no empty one", "[agent]") {
    Screen s;
    s.console.write(Stream::kErr, 1, {"\r100%"}, "[1] ");
    s.console.write(Stream::kErr, 0, {"\r 50%"}, "[0] ");
    s.console.write(Stream::kErr, 1, {"\n", false}, "[1] ");
    s.console.write(Stream::kErr, 0, {"\r100%"}, "[0] ");
    s.console.write(Stream::kErr, 1, {"done\n"}, "[1] ");
    s.console.write(Stream::kErr, 0, {"\n", false}, "[0] ");
    s.console.write(Stream::kErr, 0, {"done\n"}, "[0] ");
    std::string shown(100, '\0');
    shown.resize(static_cast<std::size_t>(::read(s.err.read_end.get(), shown.data(), shown.size())));
    CHECK(shown == "\r[1] 100%\r[0]  50%\r[0] 100%\n[1] done\n[0] done\n");
}

TEST_CASE("the rest of a line that another worker has interrupted gets its label again", "[agent]") {
    Screen s;
    s.console.write(Stream::kOut, 0, {"(Pdb) "}, "[0] ");
    s.console.write(Stream::kOut, 1, {"other\n"}, "[1] ");
    s.console.write(Stream::kOut, 0, {"42\n", false}, "[0] ");
    CHECK(s.shown() == "[0] (Pdb) \n[1] other\n[0] 42\n");
}

TEST_CASE("a new process of a worker does not continue the line that the previous one left open", "[agent]") {
    Screen s;
    s.console.write(Stream::kOut, 0, {"(Pdb) "}, "[0] ");
    s.console.write(Stream::kOut, 0, {"start\n"}, "[0] ");
    CHECK(s.shown() == "[0] (Pdb) \n[0] start\n");
}

TEST_CASE("of a worker that prints line by line every line arrives, and its end is noticed", "[agent]") {
    Screen s;
    constexpr int kLines = 20'000;
    Pipe pipe;
    const pid_t worker = fork_flushed();
    if (worker == 0) {
        for (int i = 0; i < kLines; ++i) {
            const std::string line = std::to_string(i) + "\n";
            if (::write(pipe.write_end.get(), line.data(), line.size()) != std::ssize(line)) ::_exit(1);
        }
        ::_exit(0);
    }
    pipe.write_end.reset();
    Route route;
    route.console = &s.console;
    const auto stream = std::make_shared<WorkerStream>(s.io, std::move(pipe.read_end), std::move(route));
    stream->start();
    std::string shown;
    CHECK(eventually([&] {
        s.io.restart();
        s.io.run_for(std::chrono::milliseconds(5));
        shown += s.shown();
        return s.io.stopped();  // the stream waits for nothing more
    }));
    CHECK(wait_for(worker).success());
    shown += s.shown();
    std::string expected;
    for (int i = 0; i < kLines; ++i) expected += std::to_string(i) + "\n";
    CHECK((shown == expected));
    stream->finish();
}

TEST_CASE("what follows an answered prompt begins with the label, whichever worker prints it", "[agent]") {
    Screen s;
    auto state = TerminalRead::kWaiting;
    const auto prompt = [&] {
        s.console.write(Stream::kOut, 0, {"(Pdb) "}, "[0] ");
        s.console.note_prompt(Stream::kOut, 0, [&] { return state; });
    };
    prompt();  // the terminal shows what is typed, and ends the line
    s.console.write(Stream::kOut, 0, {"42\n", false}, "[0] ");
    CHECK(s.shown() == "[0] (Pdb) [0] 42\n");
    prompt();
    s.console.write(Stream::kOut, 1, {"other\n"}, "[1] ");  // before the answer
    s.console.write(Stream::kOut, 0, {"42\n", false}, "[0] ");
    CHECK(s.shown() == "[0] (Pdb) \n[1] other\n[0] 42\n");
    prompt();
    state = TerminalRead::kNone;
    s.console.write(Stream::kOut, 1, {"other\n"}, "[1] ");  // after it
    s.console.write(Stream::kOut, 0, {"42\n", false}, "[0] ");
    CHECK(s.shown() == "[0] (Pdb) [1] other\n[0] 42\n");
    prompt();
    state = TerminalRead::kEnded;  // without an answer
    s.console.write(Stream::kOut, 0, {"start\n"}, "[0] ");
    CHECK(s.shown() == "[0] (Pdb) \n[0] start\n");
}

TEST_CASE("a worker that goes on with a line that was no prompt continues it, at once", "[agent]") {
    Screen s;
    Pipe worker;
    Route route;
    route.console = &s.console;
    route.label = "[0] ";
    route.shows_prompts = true;
    const auto stream = std::make_shared<WorkerStream>(s.io, std::move(worker.read_end), std::move(route));
    auto state = TerminalRead::kNone;
    int checks = 0;
    stream->follow_answers([&] {
        ++checks;
        return state;
    });
    stream->start();
    std::string shown;
    const auto shows = [&](std::string_view printed, std::string_view text) {
        REQUIRE(::write(worker.write_end.get(), printed.data(), printed.size()) == std::ssize(printed));
        return eventually([&] {
            s.io.restart();
            s.io.run_for(std::chrono::milliseconds(5));
            shown += s.shown();
            return shown == text;
        });
    };
    CHECK(shows("loading", "[0] loading"));
    const MachinePauses pauses;
    const TimePoint before = Clock::now();
    const std::string dots(50, '.');
    const int checks_before = checks;
    for (const char c : dots) CHECK(shows({&c, 1}, shown + c));
    const auto passed = Clock::now() - before;
    CHECK(passed - pauses.sum() < std::chrono::milliseconds(4'500));  // 50 delays of a prompt are five seconds
    CHECK(checks - checks_before <= passed / std::chrono::milliseconds(100) + 1);  // of all processes below the worker
    CHECK(shows("\n", "[0] loading" + dots + "\n"));
    state = TerminalRead::kWaiting;
    CHECK(shows("name? ", "[0] loading" + dots + "\n[0] name? "));
    CHECK(shows("Hello\n", "[0] loading" + dots + "\n[0] name? [0] Hello\n"));
    stream->finish();
}

TEST_CASE("lines of the agent begin with the time of day where that is asked for", "[agent]") {
    Screen s;
    write_block(s.console, "====\nfailed\n", false);
    CHECK(read_line(s.err.read_end.get()) == "====");
    CHECK(read_line(s.err.read_end.get()) == "failed");
    write_block(s.console, "====\nfailed\n", true);
    for (const char* const line : {"====", "failed"}) {
        const std::string shown = read_line(s.err.read_end.get());
        CHECK(shown.size() == std::string("2026-03-01T12:00:03.042+01:00 ").size() + std::string(line).size());
        CHECK_THAT(shown, Catch::StartsWith("20") && Catch::EndsWith(line));
    }
}

TEST_CASE("a block that ends within a line is no prompt", "[agent]") {
    Screen s;
    Pipe worker;
    Route route;
    route.console = &s.console;
    route.shows_prompts = true;
    const auto stream = std::make_shared<WorkerStream>(s.io, std::move(worker.read_end), std::move(route));
    stream->start();
    const std::string line(1000, 'x');
    const std::string block = line + "\n" + line + "\n" + std::string(46, 'x');
    REQUIRE(block.size() % 1024 == 0);
    REQUIRE(::write(worker.write_end.get(), block.data(), block.size()) == static_cast<ssize_t>(block.size()));
    s.io.run_for(std::chrono::milliseconds(300));  // three times the delay of a prompt
    CHECK(s.shown().size() == 2002);
    stream->finish();
}

TEST_CASE("a prompt of a worker whose lines are folded follows its lines on the other stream", "[agent]") {
    Screen s;
    Console console(s.io, s.out.write_end.get(), s.out.write_end.get());
    console.fold([](const std::vector<int>&) { return ""; }, false);
    for (const int source : {0, 1}) {
        console.open(Stream::kOut, source);
        console.open(Stream::kErr, source);
    }
    console.write(Stream::kErr, 0, {"Traceback\n"});
    console.write(Stream::kOut, 0, {"(Pdb) "});
    CHECK(s.shown() == "Traceback\n(Pdb) ");
}

TEST_CASE("a line without its end is shown after a while where prompts are wanted, else with its end", "[agent]") {
    Screen s;
    const bool prompts = GENERATE(false, true);
    Pipe worker;
    Route route;
    route.console = &s.console;
    route.shows_prompts = prompts;
    const auto stream = std::make_shared<WorkerStream>(s.io, std::move(worker.read_end), std::move(route));
    stream->start();
    std::string shown;
    const auto shows = [&](std::string_view text, std::chrono::milliseconds limit) {
        return eventually(
            [&] {
                s.io.restart();
                s.io.run_for(std::chrono::milliseconds(5));
                shown += s.shown();
                return shown == text;
            },
            limit);
    };
    REQUIRE(::write(worker.write_end.get(), "one\nname? ", 10) == 10);
    CHECK(shows(prompts ? "one\nname? " : "one\n", std::chrono::seconds(20)));
    CHECK(shows("one\nname? ", std::chrono::milliseconds(300)) == prompts);
    REQUIRE(::write(worker.write_end.get(), "Ada\n", 4) == 4);
    CHECK(shows("one\nname? Ada\n", std::chrono::seconds(20)));
    stream->finish();
}

TEST_CASE("lines of several workers are folded, the agent's own lines and unfinished ones follow what is held",
          "[agent]") {
    Screen s;
    const auto label = [](const std::vector<int>& sources) { return std::to_string(sources.size()) + "x "; };
    s.console.fold(label, false);
    for (const int source : {0, 1, 2}) s.console.open(Stream::kOut, source);
    for (const int source : {0, 1}) s.console.write(Stream::kOut, source, {"loading\n"}, "[0] ");
    CHECK(s.shown().empty());
    s.console.write(Stream::kErr, Console::kAgent, {"rank 1 failed\n"});
    CHECK(s.shown() == "2x loading\n");
    s.console.write(Stream::kOut, 0, {"ready\n"}, "[0] ");
    s.console.write(Stream::kOut, 0, {"\r 10%"}, "[0] ");
    CHECK(s.shown() == "1x ready\n\r[0]  10%");
    s.console.write(Stream::kOut, 2, {"alone\n"}, "[2] ");
    std::string shown;
    CHECK(eventually([&] {
        s.io.restart();
        s.io.run_for(std::chrono::milliseconds(5));
        shown += s.shown();
        return shown == "\n1x alone\n";
    }));
    s.console.write(Stream::kOut, 2, {"last\n"}, "[2] ");
    s.console.drain();
    CHECK(s.shown() == "1x last\n");
}

TEST_CASE("patterns choose the lines that the console shows, each as a whole", "[agent]") {
    Screen s;
    Pipe worker;
    Route route;
    route.console = &s.console;
    route.shown = Pattern::parse("loss|^a").value();
    route.hidden = Pattern::parse("debug$").value();
    const auto stream = std::make_shared<WorkerStream>(s.io, std::move(worker.read_end), std::move(route));
    const auto print = [&](std::string_view text) {
        REQUIRE(::write(worker.write_end.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
        stream->take_available();
        return s.shown();
    };
    CHECK(print("the loss\nba\nloss debug\nlo") == "the loss\n");
    CHECK(print("ss\r\nloss debug\r\n\rab\rba") == "loss\r\n\rab");
    CHECK(print("\r1 loss\nend\n") == "\r1 loss\n");
    CHECK(print("\x1b[2mlo\x1b[1mss\x1b[0m\n\x1b[31ma debug\x1b[0m\n\x1b[0m\n") == "\x1b[2mlo\x1b[1mss\x1b[0m\n");
    CHECK(print("x" + std::string(40'000, 'b')).empty());  // a line of several pieces
    CHECK(print(std::string(40'000, 'b') + "loss\nb").empty());
    stream->finish();
    CHECK(s.shown().empty());
}

TEST_CASE("lines that a worker writes together are shown together, by one system call", "[agent]") {
    boost::asio::io_context io{1};
    int ends[2];  // a socket that keeps messages apart
    REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    const UniqueFd reader(ends[0]);
    const UniqueFd screen(ends[1]);
    Console console(io, screen.get(), screen.get());
    Pipe worker;
    Route route;
    route.console = &console;
    route.label = "[0] ";
    const auto stream = std::make_shared<WorkerStream>(io, std::move(worker.read_end), std::move(route));
    const std::string_view words = "one\ntwo\nthree\nfour";
    REQUIRE(::write(worker.write_end.get(), words.data(), words.size()) == static_cast<ssize_t>(words.size()));
    const auto shown = [&] {
        std::array<char, 100> buffer{};
        const ssize_t size = ::recv(reader.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
        return std::string(buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
    };
    stream->take_available();
    CHECK(shown() == "[0] one\n[0] two\n[0] three\n");
    CHECK(shown().empty());
    stream->finish();
    CHECK(shown() == "[0] four");
}

TEST_CASE("a console that takes nothing stalls no worker, and gets everything in order later", "[agent]") {
    Screen s;
    std::string expected;
    for (int i = 0; !s.console.backlogged(); ++i) {
        REQUIRE(i < 100'000);
        const std::string line = std::to_string(i) + std::string(100, '.') + "\n";
        s.console.write(Stream::kOut, 0, {line});
        expected += line;
    }
    // Lines of the agent on the other stream are still written.
    s.console.write(Stream::kErr, Console::kAgent, {"alive\n"});
    CHECK(read_line(s.err.read_end.get()) == "alive");

    std::string shown;
    CHECK(eventually([&] {
        shown += s.shown();
        s.io.restart();
        s.io.run_for(std::chrono::milliseconds(30));
        return shown.size() >= expected.size();
    }));
    CHECK(shown == expected);
    CHECK_FALSE(s.console.backlogged());
}

TEST_CASE("the end waits until a slow reader has everything", "[agent]") {
    const Pipe out;
    const pid_t writer = fork_flushed();
    if (writer == 0) {
        boost::asio::io_context io;
        Console console(io, out.write_end.get(), 2);
        console.write(Stream::kOut, 0, {std::string(300'000, 'x') + "\n"});
        console.drain();
        ::_exit(0);
    }
    CHECK(read_line(out.read_end.get()).size() == 300'000);
    CHECK(wait_for(writer).success());
}

TEST_CASE("the end gives up a console that is not read, and reports how much it did not take", "[agent]") {
    const Screen s;
    boost::asio::io_context io;
    Console console(io, s.out.write_end.get(), s.err.write_end.get());
    console.write(Stream::kOut, 0, {std::string(300'000, 'x') + "\n"});
    const std::size_t left_bytes = console.drain(std::chrono::milliseconds(50));
    CHECK(left_bytes > 0);
    CHECK(left_bytes <= 300'001);
}

TEST_CASE("a reader that ends stops the output, not the agent", "[agent]") {
    std::signal(SIGPIPE, SIG_IGN);  // as run_agent does
    Screen s;
    s.out.read_end.reset();
    s.out.write_end.reset();
    for (int i = 0; i < 3; ++i) s.console.write(Stream::kOut, 0, {std::string(100'000, 'x')});
    CHECK_FALSE(s.console.backlogged());
    s.console.drain();
    std::signal(SIGPIPE, SIG_DFL);
}

TEST_CASE("writing does not change the open file that others share", "[agent]") {
    Screen s;
    s.console.write(Stream::kOut, 0, {"x\n"});
    CHECK((::fcntl(s.out.write_end.get(), F_GETFL) & O_NONBLOCK) == 0);
    CHECK_FALSE(s.console.is_terminal(Stream::kOut));
}

TEST_CASE("a terminal is recognised and written to without waiting", "[agent]") {
    const UniqueFd master(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
    REQUIRE(master);
    REQUIRE(::grantpt(master.get()) == 0);
    REQUIRE(::unlockpt(master.get()) == 0);
    const UniqueFd terminal(::open(::ptsname(master.get()), O_RDWR | O_NOCTTY | O_CLOEXEC));
    boost::asio::io_context io;
    Console console(io, terminal.get(), terminal.get());
    CHECK(console.is_terminal(Stream::kOut));
    while (!console.backlogged()) console.write(Stream::kOut, 0, {std::string(10'000, 'x')});  // the master is not read
    CHECK((::fcntl(terminal.get(), F_GETFL) & O_NONBLOCK) == 0);
}

TEST_CASE("output that is lost at the end is reported, unless its reader has ended", "[agent]") {
    const UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
    Screen s;
    Console console(s.io, full.get(), s.err.write_end.get());
    CHECK(console.lost_for(Stream::kOut) == 0);
    console.write(Stream::kOut, 0, {"result\n"});
    CHECK(console.lost_for(Stream::kOut) == ENOSPC);
    CHECK(console.lost_for(Stream::kErr) == 0);

    std::signal(SIGPIPE, SIG_IGN);  // as run_agent does
    s.out.read_end.reset();
    s.console.write(Stream::kOut, 0, {"result\n"});
    CHECK(s.console.lost_for(Stream::kOut) == 0);
    std::signal(SIGPIPE, SIG_DFL);
}

TEST_CASE("a full disk loses the output of that time, which is reported when there is room again", "[agent]") {
    const TemporaryDirectory directory;
    const UniqueFd file(::open((directory.path() / "console").c_str(), O_CREAT | O_RDWR | O_APPEND | O_CLOEXEC, 0600));
    REQUIRE(file);
    const auto before = ::signal(SIGXFSZ, SIG_IGN);
    rlimit usual{};
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &usual) == 0);
    boost::asio::io_context io;
    Console console(io, file.get(), file.get());
    const rlimit little{10, usual.rlim_max};  // stands for the full disk
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &little) == 0);
    console.write(Stream::kOut, 0, {"first\n"});
    console.write(Stream::kOut, 0, {"second\n"});
    console.write(Stream::kOut, 0, {"third\n"});
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &usual) == 0);
    console.write(Stream::kOut, 0, {"fourth\n"});
    console.write(Stream::kOut, 0, {"fifth\n"});
    ::signal(SIGXFSZ, before);
    std::string text(1000, '\0');
    text.resize(static_cast<std::size_t>(std::max<ssize_t>(0, ::pread(file.get(), text.data(), text.size(), 0))));
    CHECK(text == "first\nseco\n[ddprun] output is missing here: File too large\nfourth\nfifth\n");
}

TEST_CASE("a console that takes no output is waited for once, be it one file or two", "[agent]") {
    const bool one_file = GENERATE(true, false);
    boost::asio::io_context io{1};
    const Pipe out;
    const Pipe err;
    Console console(io, out.write_end.get(), one_file ? out.write_end.get() : err.write_end.get());
    const std::string more(1 << 20, 'x');  // than a pipe holds
    console.write(Stream::kOut, 0, {more + "\n"});
    console.write(Stream::kErr, 0, {more + "\n"});
    const MachinePauses pauses;
    const TimePoint start = Clock::now();
    CHECK(console.drain(std::chrono::milliseconds(800)) > 0);
    const Duration passed = Clock::now() - start;
    CHECK(passed >= std::chrono::milliseconds(800));
    CHECK(passed - pauses.sum() < std::chrono::milliseconds(1600));
}
