// Why nodes wait, how often they are sent that, and what it costs.

#include <fmt/format.h>

#include <set>
#include <string>

#include "rendezvous/protocol/json.hpp"
#include "tests/catch.hpp"
#include "tests/unit/rendezvous/coordinator/job.hpp"

using namespace ddprun;
using namespace ddprun::protocol;
using namespace ddprun::coordinator;
using Catch::Contains;

namespace {

Hosts names(int first, int last) {
    Hosts hosts;
    for (int i = first; i <= last; ++i) hosts.push_back(fmt::format("n{}", i));
    return hosts;
}

}  // namespace

TEST_CASE("beyond 64 nodes a node is sent the same kind of reason once per 5 s, without names", "[coordinator]") {
    Job job({.min_nodes = 100, .max_nodes = 100});
    for (const std::string& host : names(1, 65)) job.join(host);
    job.pass(100ms);
    CHECK(job.sent<Waiting>().at("n1").present.empty());
    job.pass(4s);
    CHECK(job.sent<Waiting>().empty());
    job.join("n66");
    CHECK(job.receivers<Waiting>() == Hosts{"n66"});
    job.pass(700ms);
    CHECK(job.sent<Waiting>().empty());
    job.pass(300ms);
    CHECK(job.sent<Waiting>().size() == 65);  // n66 has it
    CHECK_THAT(job.sent<Waiting>().at("n1").reason, Contains("66 of 100 nodes are here"));
    job.pass(4s);
    CHECK(job.receivers<Waiting>() == Hosts{"n66"});
}

TEST_CASE("beyond 64 nodes a reason of another kind is sent at once", "[coordinator]") {
    Job job({.min_nodes = 70, .max_nodes = 100});
    for (const std::string& host : names(1, 69)) job.join(host);
    job.pass(1s);
    job.join("n70");
    job.pass(100ms);
    CHECK(job.sent<Waiting>().size() == 70);
    CHECK_THAT(job.sent<Waiting>().at("n1").reason, Contains("waiting at most 30 s for more"));
}

TEST_CASE("4000 nodes that join within 60 s are sent at most 60 MB until they start", "[coordinator]") {
    constexpr int kNodes = 4000;
    constexpr int kTicks = 600;
    Job job({.min_nodes = kNodes, .max_nodes = kNodes});
    std::size_t bytes = 0;
    const auto count = [&] {
        for (const Send& send : job.asked<Send>()) bytes += encode(send.message).size();
    };
    int joined = 0;
    for (int tick = 1; tick <= kTicks; ++tick) {
        job.now += kTickInterval;
        for (; joined < kNodes * tick / kTicks; ++joined) {
            Join join = job.greeting(fmt::format("node{}.cluster.example.org", joined));
            job.join(join);
            count();
        }
        if (tick % 10 == 0)
            for (int i = 0; i < joined; ++i)
                job.say(fmt::format("node{}.cluster.example.org", i), Heartbeat{1, job.state.heartbeats});
        job.feed(Tick{});
        count();
    }
    REQUIRE(job.state.phase == Phase::kOpening);
    job.store_opens();
    count();
    CHECK(job.receivers<Assignment>().size() == kNodes);
    INFO(bytes << " bytes");
    CHECK(bytes < 60'000'000);
    CHECK(bytes > kNodes * 500u);  // else they were not counted
}

TEST_CASE("before the first group the hosts of the scheduler's list that have not joined are named", "[coordinator]") {
    Job job({.min_nodes = 4, .max_nodes = 4, .max_restarts = 1});
    job.state.config.hosts = {"n1", "n2.cluster", "n3", "n10"};
    job.join("n2");  // hosts report their short names, or whole ones
    job.join("n3.cluster");
    job.pass(1s);
    CHECK_THAT(job.state.explanation.message.reason, Contains("2 of 4 nodes are here, missing: n1, n10; giving up"));
    job.join("n10");
    job.disconnect("n10");
    job.pass(1s);
    CHECK_THAT(job.state.explanation.message.reason, Contains("2 of 4 nodes are here, missing: n1, n10"));
    for (const char* host : {"n1", "n10 again"}) job.join(host);
    CHECK(job.opens(1));
}

TEST_CASE("a wait for members of the last group names them, and when one was seen last", "[coordinator]") {
    Job job({.min_nodes = 4, .max_nodes = 4, .max_restarts = 1});
    job.start({"n1", "n2", "n10", "n3"});
    job.disconnect("n10");
    job.pass(1s);
    job.stopped("n1");
    job.stopped("n2");
    SECTION("one is lost, and one still stops its workers") {
        job.pass(500ms);
        CHECK_THAT(job.sent<Waiting>().at("n1").reason, Contains("still stopping: n3"));
        job.stopped("n3");
        job.pass(1s);
        CHECK_THAT(job.sent<Waiting>().at("n1").reason,
                   Contains("3 of 4 nodes are here, missing: n10 (node n10 was lost: connection closed); waiting"));
        job.pass(42s);
        CHECK_THAT(job.state.explanation.message.reason,
                   Contains("3 of 4 nodes are here, missing: n10 (last seen over 40 s ago) (node n10 was lost"));
        job.join_as("n10 again", "n10");
        CHECK(job.opens(2));
    }
    SECTION("another ddprun has come on the host of one") {
        job.join_as("n10 again", "n10");
        job.pass(100ms);
        job.disconnect("n3");
        job.pass(1s);
        CHECK_THAT(job.sent<Waiting>().at("n1").reason, Contains("3 of 4 nodes are here, missing: n3 ("));
    }
    SECTION("several are lost at nearly the same time") {
        job.stopped("n3");
        job.pass(2s);
        job.disconnect("n3");
        job.pass(1s);
        std::set<std::string> texts;
        for (int i = 0; i < 50; ++i) {
            job.pass(1s);
            texts.insert(job.state.explanation.message.reason);
        }
        CHECK_THAT(job.state.explanation.message.reason,
                   Contains("2 of 4 nodes are here, missing: n3, n10 (last seen over 40 s ago) ("));
        CHECK(texts.size() == 4);  // 0, 10, 20 and 40 s
    }
    SECTION("two are lost at the same time, and another one later") {
        job.stopped("n3");
        job.disconnect("n2");
        job.pass(20s);
        job.disconnect("n3");
        job.pass(25s);
        CHECK_THAT(job.state.explanation.message.reason,
                   Contains("1 of 4 nodes are here, missing: n2, n3, n10 (n2 and n10 last seen over 40 s ago) ("));
    }
    SECTION("several are lost") {
        job.stopped("n3");
        job.pass(20s);
        job.disconnect("n3");
        job.pass(1s);
        job.pass(24s);
        CHECK_THAT(job.state.explanation.message.reason,
                   Contains("2 of 4 nodes are here, missing: n3, n10 (n10 last seen over 40 s ago) ("));
    }
}

TEST_CASE("a wait for enough nodes has the time that is left, as few different texts", "[coordinator]") {
    Job job({.max_restarts = 1});
    const bool replacement = GENERATE(false, true);
    if (replacement) {
        job.start({"n1", "n2"});
        job.lose("n2");
    } else {
        job.join("n1");
    }
    std::set<std::string> ends;  // of the texts, without the time for which n2 was not seen
    for (int i = 0; i < 595; ++i) {
        job.pass(1s);
        std::string text = job.state.explanation.message.reason;
        ends.insert(text.substr(text.rfind("; ")));
    }
    CAPTURE(ends);
    CHECK(ends.size() == 6);  // 600, 300, 120, 60, 30 and 10 s
    const std::string wait = replacement ? "; waiting 600 s" : "; giving up after 600 s";
    CHECK_THAT(job.state.explanation.message.reason, Contains(wait + " (at most 10 s left)"));
}
