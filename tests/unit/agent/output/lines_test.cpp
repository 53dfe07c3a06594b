// LineBuffer and Tail.
#include <random>

#include "agent/output/line_buffer.hpp"
#include "agent/output/tail.hpp"
#include "tests/catch.hpp"

using namespace ddprun::agent;
using Progress = LineBuffer::Progress;
using Lines = std::vector<std::string>;

namespace {

/// Collects segments; marks one that continues a line by "+".
struct Collector {
    LineBuffer buffer;
    Lines lines;
    LineBuffer::Sink sink = [this](const Segment& s) {
        lines.push_back((s.starts_line ? "" : "+") + std::string(s.text));
    };

    explicit Collector(Progress progress = Progress::kHold) : buffer(progress) {}
    Lines feed(std::string_view bytes) {
        lines.clear();
        buffer.feed(bytes, sink);
        return lines;
    }
    Lines flush() {
        lines.clear();
        buffer.flush(sink);
        return lines;
    }
};

}  // namespace

TEST_CASE("lines are delivered whole however the bytes arrive", "[agent]") {
    Collector c;
    CHECK(c.feed("on") == Lines{});
    CHECK(c.feed("e\ntw") == Lines{"one\n"});
    CHECK(c.feed("o\n\nthree\n") == Lines{"two\n", "\n", "three\n"});
    CHECK(c.flush() == Lines{});
}

TEST_CASE("an unfinished last line is delivered at the end of the stream", "[agent]") {
    Collector c;
    CHECK(c.feed("no newline") == Lines{});
    CHECK(c.flush() == Lines{"no newline"});
}

TEST_CASE("a long line is delivered in pieces that continue each other", "[agent]") {
    Collector c;
    const std::string line(2 * kMaxLineBytes + 10, 'x');
    CHECK(c.feed(line) == Lines{std::string(kMaxLineBytes, 'x'), "+" + std::string(kMaxLineBytes, 'x')});
    CHECK(c.feed("y\nz\n") == Lines{"+" + std::string(10, 'x') + "y\n", "z\n"});
}

TEST_CASE("a progress bar on a terminal shows each state as soon as it is written", "[agent]") {
    Collector c(Progress::kShow);
    CHECK(c.feed("\r 10%") == Lines{"\r 10%"});
    CHECK(c.feed("\r 20%") == Lines{"\r 20%"});
    CHECK(c.feed("\n") == Lines{"+\n"});
    CHECK(c.feed("30%\r") == Lines{"30%\r"});
    CHECK(c.feed("40%\r") == Lines{"40%\r"});
    CHECK(c.feed("\n") == Lines{"+\n"});
    CHECK(c.feed("held") == Lines{});
}

TEST_CASE("a progress bar in a file shows a state when the next one begins", "[agent]") {
    Collector c;
    CHECK(c.feed("\r 10%") == Lines{});
    CHECK(c.feed("\r 20%\r 30%") == Lines{"\r 10%", "\r 20%"});
    CHECK(c.feed("\ndone\n") == Lines{"\r 30%\n", "done\n"});
}

TEST_CASE("a line end of Windows is one line end, also when it is cut", "[agent]") {
    const Progress progress = GENERATE(Progress::kHold, Progress::kShow);
    Collector c(progress);
    CHECK(c.feed("a\r\nb\r\n") == Lines{"a\r\n", "b\r\n"});
    Lines all = c.feed("c\r");
    for (const auto& line : c.feed("\nd\n")) all.push_back(line);
    CHECK(all == (progress == Progress::kHold ? Lines{"c\r\n", "d\n"} : Lines{"c\r", "+\n", "d\n"}));
}

TEST_CASE("no byte is lost, added or moved, for random bytes cut at random", "[agent]") {
    const auto seed = GENERATE(take(50, random(0u, 0xffffffffu)));
    CAPTURE(seed);
    std::mt19937 random(seed);
    std::string input, output;
    for (int i = 0; i < 3000; ++i) input += "ab\r\n\xff\x80\x1b\0"[random() % 8];
    LineBuffer buffer(seed % 2 == 0 ? Progress::kHold : Progress::kShow);
    const LineBuffer::Sink sink = [&](const Segment& s) {
        REQUIRE_FALSE(s.text.empty());
        const bool lines = seed % 3 == 0 && s.text.find('\r') == std::string_view::npos && s.text.ends_with('\n');
        REQUIRE((lines || s.text.find('\n') >= s.text.size() - 1));  // a line end is the last byte, if there is one
        output += s.text;
    };
    for (std::size_t at = 0; at < input.size();) {
        const std::size_t size = 1 + random() % 40;
        buffer.feed(std::string_view(input).substr(at, size), sink,
                    seed % 3 == 0 ? LineBuffer::Unit::kLines : LineBuffer::Unit::kLine);
        at += size;
    }
    buffer.flush(sink);
    CHECK(output == input);
}

TEST_CASE("whole lines come together where that is asked for", "[agent]") {
    Collector c;
    const auto feed = [&](std::string_view bytes) {
        c.lines.clear();
        c.buffer.feed(bytes, c.sink, LineBuffer::Unit::kLines);
        return c.lines;
    };
    CHECK(feed("one\ntwo\n\nth") == Lines{"one\ntwo\n\n"});
    CHECK(feed("ree\nfour\nfive\nsi") == Lines{"three\n", "four\nfive\n"});
    CHECK(feed("x\n\r 10%\rseven\neight\n") == Lines{"six\n", "\r 10%", "\rseven\n", "eight\n"});
    CHECK(feed("nine\r\nten\n") == Lines{"nine\r\n", "ten\n"});
}

TEST_CASE("a tail keeps the last twenty lines and an unfinished one", "[agent]") {
    Tail tail;
    for (int i = 0; i < 30; ++i) tail.append(std::to_string(i) + "\n");
    CHECK(tail.lines().size() == Tail::kMaxLines);
    CHECK(tail.lines().front() == "10");
    tail.append("what(): no");
    CHECK(tail.lines().size() == Tail::kMaxLines);
    CHECK(tail.lines().front() == "11");
    CHECK(tail.lines().back() == "what(): no");
}

TEST_CASE("a tail keeps the latest state of a progress bar, cuts long lines and contains text only", "[agent]") {
    Tail tail;
    tail.append("\r 10%\r 20%");
    CHECK(tail.lines() == Lines{" 20%"});
    tail.append("\r\n");
    CHECK(tail.lines() == Lines{" 20%"});
    tail.append(std::string(5000, 'x') + "\n\xff\x01\n");
    CHECK(tail.lines().at(1) == std::string(Tail::kMaxLineBytes, 'x') + " …");
    CHECK(tail.tracebacks() == 0);
    tail.append("\nTraceback (most rec");
    tail.append("ent call last):");
    CHECK(tail.tracebacks() == 0);
    tail.append("\n  File \"a.py\"\nError: Traceback (most recent call last):\n");
    CHECK(tail.tracebacks() == 1);
    CHECK(tail.lines().at(2) == "\xef\xbf\xbd\\x01");
}
