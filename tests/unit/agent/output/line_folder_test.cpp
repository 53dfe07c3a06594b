#include "agent/output/line_folder.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/catch.hpp"

using namespace ddprun;
using namespace ddprun::agent;
using namespace std::chrono_literals;
using Lines = std::vector<std::string>;

namespace {

/// A folder of `count` open sources with a clock of its own; `lines` has what it released, as "0,1: text".
struct FoldRig {
    Lines lines;
    std::map<int, std::string> by_source;  ///< all that was released of each source
    TimePoint now{};
    LineFolder folder{[this](const LineFolder::Folded& line) {
        const std::string text(line.text.substr(0, line.text.size() - 1));
        lines.push_back(fmt::format("{}: {}", fmt::join(line.sources, ","), text));
        for (const int source : line.sources) by_source[source] += text + "\n";
    }};

    explicit FoldRig(int count) {
        for (int source = 0; source < count; ++source) folder.open(source);
    }
    void add(int source, const std::string& text) { folder.add(source, text + "\n", now); }
    void pass(Duration time) {
        now += time;
        folder.release_due(now);
    }
    Lines taken() { return std::exchange(lines, {}); }
};

}  // namespace

TEST_CASE("a line that all sources print is released once, as soon as the last has printed it", "[agent]") {
    FoldRig rig(3);
    rig.add(0, "loading");
    rig.add(2, "loading");
    CHECK(rig.taken().empty());
    rig.add(1, "loading");
    CHECK(rig.taken() == Lines{"0,1,2: loading"});
    CHECK_FALSE(rig.folder.holds_lines());
}

TEST_CASE("a line of one source alone is released when no other has joined it for a while", "[agent]") {
    FoldRig rig(3);
    rig.add(0, "odd");
    rig.pass(LineFolder::kQuiet - 1ms);
    CHECK(rig.taken().empty());
    rig.pass(1ms);
    CHECK(rig.taken() == Lines{"0: odd"});
}

TEST_CASE("a line that others join again and again is not held for ever", "[agent]") {
    FoldRig rig(100);
    int source = 0;
    for (; rig.lines.empty() && source < 99; ++source) {
        rig.add(source, "slow");
        rig.pass(50ms);
    }
    CHECK(rig.now == TimePoint{} + LineFolder::kMaxHeld);
    rig.add(source, "slow");
    rig.pass(LineFolder::kQuiet);
    CHECK(rig.lines.size() == 2);
}

TEST_CASE("a source that prints odd lines does not part the lines that follow from those of the others", "[agent]") {
    FoldRig rig(3);
    for (const char* line : {"a", "b", "c"}) rig.add(0, line);
    for (const char* line : {"a", "odd", "b", "odder", "c"}) rig.add(1, line);
    for (const char* line : {"oddest", "a", "b", "c"}) rig.add(2, line);
    CHECK(rig.taken() == Lines{"2: oddest", "0,1,2: a", "1: odd", "0,1,2: b", "1: odder", "0,1,2: c"});
}

TEST_CASE("a line that one source prints twice is two lines", "[agent]") {
    FoldRig rig(2);
    for (int i = 0; i < 3; ++i) rig.add(0, "tick");
    for (int i = 0; i < 2; ++i) rig.add(1, "tick");
    CHECK(rig.taken() == Lines{"0,1: tick", "0,1: tick"});
    rig.pass(LineFolder::kQuiet);
    CHECK(rig.taken() == Lines{"0: tick"});
}

TEST_CASE("a source that has ended is not waited for", "[agent]") {
    FoldRig rig(3);
    rig.add(0, "done");
    rig.add(1, "done");
    rig.folder.close(2);
    CHECK(rig.taken() == Lines{"0,1: done"});
    rig.add(0, "last");
    rig.folder.close(0);
    CHECK(rig.taken().empty());
    rig.folder.close(1);
    CHECK(rig.taken() == Lines{"0: last"});
}

TEST_CASE("lines that must not wait are released with those in front of them", "[agent]") {
    FoldRig rig(3);
    rig.add(0, "a");
    rig.add(1, "b");
    rig.add(1, "c");
    rig.add(1, "d");
    rig.folder.release_lines_of(2);
    CHECK(rig.taken().empty());
    rig.folder.release_lines_of(0);
    CHECK(rig.taken() == Lines{"1: b", "1: c", "1: d", "0: a"});
    rig.add(2, "e");
    rig.folder.release_all();
    CHECK(rig.taken() == Lines{"2: e"});
}

TEST_CASE("the lines that wait for a silent source are bounded", "[agent]") {
    FoldRig rig(2);
    const std::string text(1000, 'x');
    const int count = LineFolder::kMaxHeldBytes / 1000;
    for (int i = 0; i < count; ++i) rig.add(0, text + std::to_string(i));
    CHECK_FALSE(rig.lines.empty());
    const std::size_t released = rig.lines.size();
    for (int i = 0; i < 400'000; ++i) rig.add(0, "");  // short lines take memory, too
    CHECK(rig.lines.size() > released + 50'000);
}

TEST_CASE("64 sources with the same 10,000 lines and an odd one each give 10,064 lines", "[agent]") {
    constexpr int kSources = 64;
    constexpr int kLines = 10'000;
    constexpr int kSkew = 300;  // a source is at most so many lines in front of another
    std::mt19937 random(7);
    FoldRig rig(kSources);
    std::vector<int> next(kSources, 0);
    std::vector<int> odd_at;
    for (int source = 0; source < kSources; ++source) odd_at.push_back(static_cast<int>(random() % kLines));
    for (int slowest = 0; slowest < kLines; slowest = std::ranges::min(next)) {
        const int source = static_cast<int>(random() % kSources);
        for (auto burst = random() % 100; burst > 0 && next[source] < std::min(kLines, slowest + kSkew); --burst) {
            if (next[source] == odd_at[source]) rig.add(source, fmt::format("odd {}", source));
            rig.add(source, fmt::format("line {}", next[source]++));
        }
        rig.pass(10us);
    }
    CHECK(rig.lines.size() == kLines + kSources);
    CHECK_FALSE(rig.folder.holds_lines());
}

TEST_CASE("no order of lines, pauses and ends loses a line or changes the order of a source", "[agent]") {
    const auto seed = GENERATE(range(0u, 100u));
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto below = [&](unsigned limit) { return static_cast<int>(random() % limit); };
    FoldRig rig(0);
    std::map<int, std::string> printed;
    std::map<int, bool> open;
    for (int i = 0; i < 2000; ++i) {
        const int source = below(6);
        switch (below(60)) {
            case 0:
                rig.folder.close(source);
                open[source] = false;
                break;
            case 1: rig.folder.release_lines_of(source); break;
            case 2: rig.folder.release_all(); break;
            case 3:
            case 4: rig.pass(std::chrono::milliseconds(below(300))); break;
            default:
                if (!std::exchange(open[source], true)) rig.folder.open(source);
                const std::string text(1, static_cast<char>('a' + below(1 + seed % 5)));
                rig.add(source, text);
                printed[source] += text + "\n";
        }
    }
    for (int source = 0; source < 6; ++source) rig.folder.close(source);
    CHECK_FALSE(rig.folder.holds_lines());
    CHECK(rig.by_source == printed);
}
