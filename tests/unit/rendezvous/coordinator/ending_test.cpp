// The end of the daemon: after the verdict, without agents, and by a signal.
#include "common/exit_codes.hpp"
#include "tests/catch.hpp"
#include "tests/unit/rendezvous/coordinator/job.hpp"

using namespace ddprun;
using namespace ddprun::coordinator;
using namespace ddprun::protocol;
using Catch::Contains;

namespace {

std::vector<EndDaemon> end_with(int exit_code) { return {EndDaemon{exit_code}}; }

}  // namespace

TEST_CASE("the daemon ends with the verdict, whatever that is", "[coordinator]") {
    const bool fails = GENERATE(false, true);
    Job job({.min_nodes = 1, .max_nodes = 1});
    job.start({"n1"});
    if (fails) job.fail("n1", failure(0, "n1"));
    fails ? job.stopped("n1") : job.succeeded("n1");
    REQUIRE(job.ends_job);
    CHECK(job.receivers<Finished>() == Hosts{"n1"});
    CHECK(job.asked<EndDaemon>() == end_with(exit_code::kSuccess));
}

TEST_CASE("the daemon waits for a node that is disconnected when the job ends, for its grace", "[coordinator]") {
    Job job({.min_nodes = 1, .max_nodes = 1});
    job.start({"n1", "n2"});  // n2 is a spare
    job.disconnect("n2");
    job.now += 500ms;
    job.succeeded("n1");
    REQUIRE(job.ends_job);
    CHECK(job.asked<EndDaemon>().empty());
    SECTION("it comes back and gets the verdict") {
        job.join("n2");
        CHECK(job.receivers<Finished>() == Hosts{"n2"});
        job.feed(Tick{});
    }
    SECTION("it stays away") {
        job.now += 499ms;
        job.feed(Tick{});
        CHECK(job.asked<EndDaemon>().empty());
        job.now += 1ms;
        job.feed(Tick{});
    }
    SECTION("the daemon pauses: the pause does not count") {
        job.now += 5s;
        job.feed(Tick{});
        CHECK(job.asked<EndDaemon>().empty());
        job.now += 500ms;
        job.feed(Tick{});
    }
    SECTION("another node loses its connection afterwards: it has the verdict") {
        job.join("n2");
        job.now += 1ms;
        job.disconnect("n1");
        job.feed(Tick{});
    }
    CHECK(job.asked<EndDaemon>() == end_with(exit_code::kSuccess));
}

TEST_CASE("the daemon does not wait for a disconnected node that was interrupted and has stopped", "[coordinator]") {
    Job job;
    job.start({"n1", "n2"});
    job.leave("n1");
    job.leave("n2");
    job.stopped("n1");
    job.disconnect("n1");
    job.stopped("n2");
    REQUIRE(job.ends_job);
    CHECK(job.asked<EndDaemon>() == end_with(exit_code::kSuccess));
}

TEST_CASE("a daemon without agents ends after its linger time, which a pause of its own does not shorten",
          "[coordinator]") {
    Job job;
    job.state.config.reconnect_grace = 60s;  // else the job ends first, for lack of nodes
    SECTION("none ever joins") {}
    SECTION("the last one is disconnected") {
        job.join("n1");
        job.pass(30s);
        CHECK(job.asked<EndDaemon>().empty());
        job.disconnect("n1");
    }
    SECTION("the daemon was stopped meanwhile") {
        job.pass(5s);
        job.now += 60s;
        job.pass(4900ms);
        CHECK(job.asked<EndDaemon>().empty());
        job.pass(400ms);
        CHECK(job.asked<EndDaemon>() == end_with(exit_code::kInfrastructure));
        return;
    }
    job.pass(10s);  // counted from the first tick
    CHECK(job.asked<EndDaemon>().empty());
    job.pass(100ms);
    CHECK(job.asked<EndDaemon>() == end_with(exit_code::kInfrastructure));
    CHECK_FALSE(job.state.verdict);
    CHECK_THAT(job.reason,
               Contains("no agent was connected for 10.0 s") || Contains("no agent was connected for 10 s"));
}

TEST_CASE("an agent that joins in time keeps the daemon, although its connection breaks before the next tick",
          "[coordinator]") {
    Job job;
    job.pass(9950ms);
    job.join("n1");
    job.disconnect("n1");
    job.pass(200ms);
    job.join("n1");  // connects again
    job.pass(60s);
    CHECK(job.asked<EndDaemon>().empty());
}

TEST_CASE("an agent that joins in time keeps the daemon", "[coordinator]") {
    Job job;
    job.pass(9900ms);
    job.join("n1");
    job.pass(60s);
    CHECK(job.asked<EndDaemon>().empty());
}

TEST_CASE("a signal to the daemon ends the job in every phase, and the daemon with 128 + n", "[coordinator]") {
    Job job;
    SECTION("without a node") {}
    SECTION("gathering") { job.join("n1"); }
    SECTION("opening") {
        job.join("n1");
        job.join("n2");
    }
    SECTION("running") { job.start({"n1", "n2"}); }
    SECTION("stopping") {
        job.start({"n1", "n2"});
        job.fail("n1", failure(0, "n1"));
    }
    const auto nodes = job.state.nodes.size();
    job.feed(StopRequested{SIGTERM});
    CHECK(job.verdict().outcome == Outcome::kStopped);
    CHECK(job.verdict().exit_code == 143);
    CHECK(job.verdict().reason == "the job was interrupted by SIGTERM, which its rendezvous daemon got");
    CHECK(job.receivers<Finished>().size() == nodes);
    CHECK(job.asked<EndDaemon>() == end_with(143));
    CHECK(job.actions.size() == nodes + 1);
}

TEST_CASE("a node that is lost by the network when the job ends may still come for the verdict", "[coordinator]") {
    Job job;
    job.start({"n1", "n2"});
    job.silent.insert("n2");
    job.pass(3s);  // n2 is lost, and the job has no restart
    REQUIRE(job.state.phase == Phase::kStopping);
    job.stopped("n1");
    REQUIRE(job.ends_job);
    CHECK(job.receivers<Finished>() == Hosts{"n1"});
    CHECK(job.asked<EndDaemon>().empty());
    SECTION("it dials, and gets the verdict") {
        job.pass(1s);
        job.join("n2");
        CHECK(job.sent<Finished>().at("n2").verdict == *job.state.verdict);
        job.feed(Tick{});
    }
    SECTION("it stays away: the next job may need the port") {
        job.pass(2900ms);
        CHECK(job.asked<EndDaemon>().empty());
        job.pass(100ms);
    }
    CHECK(job.asked<EndDaemon>() == end_with(exit_code::kSuccess));
}

TEST_CASE("the daemon does not wait for a lost node whose agent has ended, or that no longer dials", "[coordinator]") {
    Job job;
    const bool is_closed = GENERATE(true, false);
    if (!is_closed) job.state.config.hold = 1s;
    job.start({"n1", "n2"});
    if (is_closed)
        job.disconnect("n2");
    else
        job.silent.insert("n2");
    job.pass(3s);
    job.stopped("n1");
    REQUIRE(job.ends_job);
    CHECK(job.asked<EndDaemon>() == end_with(exit_code::kSuccess));
}

TEST_CASE("a lost node that the daemon has forgotten gets the verdict, too", "[coordinator]") {
    Job job;
    job.start({"n1", "n2"});
    job.join("n3");
    job.disconnect("n3");
    job.pass(1s);  // it had no workers: nothing is remembered
    job.disconnect("n2");
    job.pass(1s);
    job.stopped("n1");
    REQUIRE(job.ends_job);
    Join again = job.greeting("n3");
    again.session = job.state.config.session;
    job.join(again);
    CHECK(job.receivers<Welcome>() == Hosts{"n3"});
    CHECK(job.receivers<Finished>() == Hosts{"n3"});
}

TEST_CASE("a signal to the daemon after the verdict ends it without waiting for a node", "[coordinator]") {
    Job job({.min_nodes = 1, .max_nodes = 1});
    job.start({"n1", "n2"});
    job.disconnect("n2");
    job.succeeded("n1");
    REQUIRE(job.asked<EndDaemon>().empty());
    job.feed(StopRequested{SIGTERM});
    CHECK(job.actions == std::vector<Action>{EndDaemon{exit_code::kSuccess}});
    CHECK(job.state.verdict->exit_code == 0);
}

TEST_CASE("a job that no further node will join ends when too few are left", "[coordinator]") {
    const std::string why = "an emulated node is not replaced";
    Job job({.min_nodes = 2, .max_nodes = 2, .max_restarts = 3});
    SECTION("reported before the loss is noticed") {
        job.start({"n1", "n2"});
        job.feed(NoMoreNodes{why});
        CHECK_FALSE(job.ends_job);
        job.disconnect("n2");
        job.pass(1s);
        job.stopped("n1");
    }
    SECTION("reported while the others wait for a replacement") {
        job.start({"n1", "n2"});
        job.disconnect("n2");
        job.pass(1s);
        job.stopped("n1");
        CHECK_FALSE(job.ends_job);
        job.feed(NoMoreNodes{why});
    }
    SECTION("reported before the first group") {
        job.join("n1");
        job.feed(NoMoreNodes{why});
    }
    SECTION("reported before any node has joined") {
        job.feed(NoMoreNodes{why});
        job.join("n1");
    }
    CHECK(job.verdict().exit_code == exit_code::kInfrastructure);
    CHECK_THAT(job.verdict().reason, Contains(job.state.groups_started > 0 ? "only 1 is left (n1), and " + why
                                                                           : "only 1 is here (n1), and " + why));
}

TEST_CASE("a daemon whose starter ends before any agent has joined ends soon, but leaves others time to join",
          "[coordinator]") {
    Job job;
    const Duration before = GENERATE(as<Duration>(), 0s, 5s);
    job.pass(before);
    CHECK(job.asked<EndDaemon>().empty());
    job.feed(StarterEnded{});
    job.pass(200ms);
    CHECK(job.asked<EndDaemon>().empty());  // another ddprun may have found the daemon on its port
    SECTION("which do not") {
        job.pass(300ms);
        CHECK(job.asked<EndDaemon>() == std::vector{EndDaemon{exit_code::kInfrastructure}});
    }
    SECTION("one does") {
        job.join("n1");
        job.pass(4s);
        CHECK(job.asked<EndDaemon>().empty());
    }
}

TEST_CASE("the daemon does not wait for a broken connection of its own host when its starter has ended",
          "[coordinator]") {
    Job job;
    job.state.config.linger = 5s;
    const auto [max_nodes, beside_daemon] = GENERATE(table<int, bool>({{1, true}, {2, true}, {1, false}}));
    Join join = job.greeting("n1");
    join.min_nodes = 1;
    join.max_nodes = max_nodes;
    job.feed(NodeMessage{"n1", join, beside_daemon});
    job.pass(5s);
    job.feed(NodeDisconnected{"n1", true});  // killed with messages that it had not read
    job.feed(StarterEnded{});
    job.pass(beside_daemon ? 5100ms : 20s);
    CHECK(job.asked<EndDaemon>().empty() == !beside_daemon);
}
