// Which node hosts the daemon: the rows of docs/design/018, and races between agents as sequences.

#include "launcher/meeting/meet.hpp"

#include "tests/catch.hpp"
#include "tests/unit/launcher/meeting/memory_point.hpp"

using namespace meeting_test;
using namespace std::chrono_literals;

namespace {

const std::string kName = "ddprun/x";

Result<Meeting> meet_here(MemoryPoint& point, FakeNode& node, const MeetingSettings& settings = {}) {
    return meet(point, kName, settings, node);
}

}  // namespace

TEST_CASE("each sight of a meeting point has one next move", "[launcher][unit]") {
    CHECK(next_move({}) == Move::kStart);
    CHECK(next_move({.started = true}) == Move::kClaim);
    CHECK(next_move({.port_taken = true}) == Move::kWait);
    CHECK(next_move({.may_host = false}) == Move::kWait);
    for (const bool may_host : {false, true}) {
        for (const bool started : {false, true}) {
            for (const bool spare : {false, true}) {
                const auto move = [&](Reach reach) { return next_move({true, reach, may_host, spare, started}); };
                CHECK(move(Reach::kAnswers) == Move::kJoin);
                CHECK(move(Reach::kComplete) == Move::kJoin);
                CHECK(move(Reach::kSilent) == Move::kWait);
                CHECK(move(Reach::kEnding) == (spare ? Move::kJoin : Move::kWait));
            }
        }
    }
    CHECK(next_move({.published = true, .reach = Reach::kEnded}) == Move::kStart);
    CHECK(next_move({.published = true, .reach = Reach::kEnded, .started = true}) == Move::kClaim);
    CHECK(next_move({.published = true, .reach = Reach::kEnded, .may_host = false}) == Move::kWait);
}

TEST_CASE("the first agent hosts at the address by which the meeting point knows it", "[launcher][unit]") {
    MemoryPoint point;
    FakeNode node;
    const auto meeting = meet_here(point, node);
    REQUIRE(meeting.has_value());
    CHECK(meeting->daemon.address.port == 1000);
    CHECK(node.bound_at == "10.0.0.9");
    REQUIRE(meeting->mine.has_value());
    CHECK(point.find(kName) == meeting->mine);
    CHECK(parse_daemon_record(meeting->mine->value).value() == meeting->daemon);
    CHECK(node.stops == 0);
    CHECK(node.reports.empty());
}

TEST_CASE("the second agent joins and starts nothing", "[launcher][unit]") {
    MemoryPoint point;
    point.put(kName, to_json(record_of(2000)));
    FakeNode node;
    node.answers = {{2000, Reach::kAnswers}};
    const auto meeting = meet_here(point, node);
    REQUIRE(meeting.has_value());
    CHECK(meeting->daemon == record_of(2000));
    CHECK_FALSE(meeting->mine.has_value());
    CHECK(node.starts == 0);
}

TEST_CASE("the loser of a claim stops its daemon and joins the winner's", "[launcher][unit]") {
    MemoryPoint point;
    FakeNode node;
    node.answers = {{2000, Reach::kAnswers}};
    point.before_claim = [&] { point.put(kName, to_json(record_of(2000))); };
    const auto meeting = meet_here(point, node);
    REQUIRE(meeting.has_value());
    CHECK(meeting->daemon == record_of(2000));
    CHECK_FALSE(meeting->mine.has_value());
    CHECK(node.starts == 1);
    CHECK(node.stops == 1);
}

TEST_CASE("an address that refuses connections is replaced, and is asked twice before", "[launcher][unit]") {
    MemoryPoint point;
    point.put(kName, to_json(record_of(2000)));
    FakeNode node;
    const auto meeting = meet_here(point, node);
    REQUIRE(meeting.has_value());
    CHECK(meeting->mine.has_value());
    CHECK(meeting->daemon.address.port == 1000);
    CHECK(node.asked == std::vector<std::uint16_t>{2000, 2000});
    REQUIRE(node.reports.size() == 1);
    CHECK(node.reports[0] ==
          "replaced the address 10.0.0.1:2000 (host n1, pid 71) of an ended daemon at memory, ddprun/x");
}

TEST_CASE("of two agents that replace one stale address one hosts", "[launcher][unit]") {
    MemoryPoint point;
    point.put(kName, to_json(record_of(2000)));
    FakeNode slow;
    FakeNode fast;
    fast.own_port = 3000;
    slow.answers = {{3000, Reach::kAnswers}};
    std::optional<Meeting> other;
    point.before_claim = [&] { other = meet_here(point, fast).value(); };
    const auto meeting = meet_here(point, slow);
    REQUIRE(meeting.has_value());
    REQUIRE(other.has_value());
    CHECK(other->mine.has_value());
    CHECK_FALSE(meeting->mine.has_value());
    CHECK(meeting->daemon == other->daemon);
    CHECK(slow.stops == 1);
    CHECK(fast.stops == 0);
}

TEST_CASE("a value that is withdrawn during a claim leaves the name free", "[launcher][unit]") {
    MemoryPoint point;
    point.put(kName, to_json(record_of(2000)));
    FakeNode node;
    point.before_claim = [&] { point.values.clear(); };
    const auto meeting = meet_here(point, node);
    REQUIRE(meeting.has_value());
    CHECK(meeting->mine.has_value());
    CHECK(node.starts == 1);
    CHECK(node.stops == 0);
}

TEST_CASE("a daemon that has ended during a slow claim is replaced by another one", "[launcher][unit]") {
    MemoryPoint point;
    FakeNode node;
    node.ends_of_daemons = 1;
    const auto meeting = meet_here(point, node);
    REQUIRE(meeting.has_value());
    CHECK(meeting->daemon.address.port == 1001);
    CHECK(parse_daemon_record(point.find(kName)->value).value() == meeting->daemon);
    CHECK(node.starts == 2);
}

TEST_CASE("silence is not an end: the agent waits, then names the value to remove", "[launcher][unit]") {
    MemoryPoint point;
    point.put(kName, to_json(record_of(2000)));
    FakeNode node;
    node.answers = {{2000, Reach::kSilent}};
    const auto meeting = meet_here(point, node, {.silence_limit = 5s});
    REQUIRE_FALSE(meeting.has_value());
    CHECK(meeting.error().code == Errc::kTimeout);
    CHECK(meeting.error().message ==
          "cannot join the job within 5 s: the daemon at 10.0.0.1:2000 (host n1, pid 71), published at memory, "
          "ddprun/x, does not answer. If no job of this name runs, remove the value (forget ddprun/x), or pass another "
          "--rdzv-id.");
    CHECK(node.starts == 0);
    CHECK(node.now() >= TimePoint{} + 5s);
    REQUIRE(node.reports.size() == 1);
    CHECK_THAT(node.reports[0], Catch::StartsWith("waiting: the daemon at 10.0.0.1:2000"));
}

TEST_CASE("an agent waits until the job before it has ended, then replaces its address", "[launcher][unit]") {
    MemoryPoint point;
    point.put(kName, to_json(record_of(2000)));
    FakeNode node;
    node.answers = {{2000, Reach::kEnding}};
    point.on_read = [&] {
        if (point.reads == 5) node.answers.clear();
    };
    const auto meeting = meet_here(point, node, {.silence_limit = 5s});
    REQUIRE(meeting.has_value());
    CHECK(meeting->mine.has_value());
    CHECK(node.starts == 1);
    REQUIRE(node.reports.size() == 2);
    CHECK(node.reports[0] ==
          "waiting: the daemon at 10.0.0.1:2000 (host n1, pid 71), published at memory, ddprun/x, serves a job that is "
          "ending; giving up after 5 s");
}

TEST_CASE("an agent asks a job that is ending less and less often, and another one soon", "[launcher][unit]") {
    MemoryPoint point;
    point.put(kName, to_json(record_of(2000)));
    FakeNode node;
    node.answers = {{2000, Reach::kEnding}, {3000, Reach::kEnding}};
    point.on_read = [&] {
        if (point.reads == 7) point.put(kName, to_json(record_of(3000)));
        if (point.reads == 9) node.answers[3000] = Reach::kSilent;
        if (point.reads == 11) node.answers[3000] = Reach::kAnswers;
    };
    REQUIRE(meet_here(point, node).has_value());
    CHECK(node.pauses ==
          std::vector<Duration>{200ms, 400ms, 800ms, 1600ms, 2000ms, 2000ms, 200ms, 400ms, 200ms, 200ms});
}

TEST_CASE("an agent that has waited for the end of a job too long advises to start it again", "[launcher][unit]") {
    MemoryPoint point;
    point.put(kName, to_json(record_of(2000)));
    FakeNode node;
    node.answers = {{2000, Reach::kEnding}};
    const auto meeting = meet_here(point, node, {.silence_limit = 5s});
    REQUIRE_FALSE(meeting.has_value());
    CHECK(meeting.error().code == Errc::kTimeout);
    CHECK_THAT(meeting.error().message,
               Catch::EndsWith("serves a job that is ending. Start this node again when that job has ended, or pass a "
                               "longer time to wait: --rdzv-conf read_timeout=SECONDS."));
}

TEST_CASE("each reason of a wait has its whole limit", "[launcher][unit]") {
    MemoryPoint point;
    point.put(kName, to_json(record_of(2000)));
    FakeNode node;
    node.answers = {{2000, Reach::kEnding}, {3000, Reach::kAnswers}};
    point.on_read = [&] {
        if (node.now() >= TimePoint{} + 15s) node.answers.erase(2000);
        node.port_is_taken = node.now() >= TimePoint{} + 15s;
        if (node.now() >= TimePoint{} + 22s) point.put(kName, to_json(record_of(3000)));
    };
    const auto meeting = meet_here(point, node);
    INFO((meeting ? "" : meeting.error().message));
    REQUIRE(meeting.has_value());
    CHECK(meeting->daemon == record_of(3000));
    REQUIRE(node.reports.size() == 2);
    CHECK_THAT(node.reports[1], Catch::Contains("has the port of --master-port") && Catch::EndsWith("after 10 s"));
}

TEST_CASE("a job that seems complete is asked again, and may be ending", "[launcher][unit]") {
    MemoryPoint point;
    point.put(kName, to_json(record_of(2000)));
    FakeNode node;
    node.on_ask = [&] {
        const std::vector<Reach> answers{Reach::kComplete, Reach::kEnding, Reach::kEnded, Reach::kEnded};
        node.answers = {{2000, answers.at(node.asked.size() - 1)}};
    };
    const auto meeting = meet_here(point, node);
    REQUIRE(meeting.has_value());
    CHECK(meeting->mine.has_value());
    CHECK(node.asked.size() == 4);
}

TEST_CASE("a spare node joins a job that is ending, which may need it", "[launcher][unit]") {
    MemoryPoint point;
    point.put(kName, to_json(record_of(2000)));
    FakeNode node;
    node.answers = {{2000, Reach::kEnding}};
    const auto meeting = meet_here(point, node, {.spare = true});
    REQUIRE(meeting.has_value());
    CHECK(meeting->daemon == record_of(2000));
    CHECK(node.pauses.empty());
}

TEST_CASE("an agent that waits for a silent daemon sees another one that is published", "[launcher][unit]") {
    MemoryPoint point;
    point.put(kName, to_json(record_of(2000)));
    FakeNode node;
    node.answers = {{2000, Reach::kSilent}, {3000, Reach::kAnswers}};
    point.on_read = [&] {
        if (point.reads == 10) point.put(kName, to_json(record_of(3000)));
    };
    const auto meeting = meet_here(point, node, {.silence_limit = 5s});
    REQUIRE(meeting.has_value());
    CHECK(meeting->daemon == record_of(3000));
}

TEST_CASE("with is_host=0 an agent waits for an address, and starts no daemon", "[launcher][unit]") {
    MemoryPoint point;
    FakeNode node;
    node.answers = {{3000, Reach::kAnswers}};
    const bool published = GENERATE(true, false);
    point.on_read = [&] {
        if (published && point.reads == 20) point.put(kName, to_json(record_of(3000)));
    };
    const auto meeting = meet_here(point, node, {.may_host = false, .publish_limit = 10s});
    CHECK(meeting.has_value() == published);
    if (!published) {
        CHECK(meeting.error().code == Errc::kTimeout);
        CHECK(meeting.error().message ==
              "cannot join the job within 10 s: no daemon is published at memory, ddprun/x. is_host=0 keeps this node "
              "from "
              "hosting it: start the node that may host it.");
    }
    CHECK(node.starts == 0);
}

TEST_CASE("a port that another ddprund of this machine has is that of the job, or an error", "[launcher][unit]") {
    MemoryPoint point;
    FakeNode node;
    node.port_is_taken = true;
    node.answers = {{3000, Reach::kAnswers}};
    const bool published = GENERATE(true, false);
    point.on_read = [&] {
        if (published && point.reads == 3) point.put(kName, to_json(record_of(3000)));
    };
    const auto meeting = meet_here(point, node);
    CHECK(meeting.has_value() == published);
    if (!published) {
        CHECK(meeting.error().code == Errc::kInUse);
        CHECK_THAT(meeting.error().message, Catch::Contains("pass another --master-port"));
    }
    CHECK(node.stops == 0);
}

TEST_CASE("a value that is no address is an error with the command that removes it", "[launcher][unit]") {
    MemoryPoint point;
    point.put(kName, GENERATE(values<std::string>({"hello", "{}", R"({"version":2})", R"({"version":1})"})));
    FakeNode node;
    const auto meeting = meet_here(point, node);
    REQUIRE_FALSE(meeting.has_value());
    CHECK_THAT(meeting.error().message, Catch::StartsWith("cannot use the value at memory, ddprun/x: "));
    CHECK_THAT(meeting.error().message, Catch::Contains("forget ddprun/x"));
    CHECK(node.starts == 0);
}

TEST_CASE("a loopback address is joined on its own host only", "[launcher][unit]") {
    MemoryPoint point;
    FakeNode node;
    node.answers = {{2000, Reach::kAnswers}};
    const std::string host = GENERATE("own", "n1");
    point.put(kName, to_json(DaemonRecord{{"127.0.0.1", 2000}, host, 71, "c"}));
    const auto meeting = meet_here(point, node);
    CHECK(meeting.has_value() == (host == "own"));
    if (!meeting) CHECK(meeting.error().code == Errc::kUnreachable);
    CHECK(node.starts == 0);
}
