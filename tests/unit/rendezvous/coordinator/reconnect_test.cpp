// Nodes that reconnect, within their grace or later.
#include "tests/catch.hpp"
#include "tests/unit/rendezvous/coordinator/job.hpp"

using namespace ddprun;
using namespace ddprun::protocol;
using namespace ddprun::coordinator;

namespace {

/// Returns a job of three nodes whose second one is lost, and whose others run the next generation.
Job gone_on_without_n2(int max_restarts = 0) {
    Job job = three(max_restarts);
    job.disconnect("n2");
    job.pass(2s);
    job.stopped("n1");
    job.stopped("n3");
    job.store_opens();
    return job;
}

}  // namespace

TEST_CASE("a node that reconnects within the grace gets what it may have missed", "[coordinator]") {
    Job job = three();
    const Assignment assignment = job.sent<Assignment>().at("n2");
    job.disconnect("n2");
    SECTION("its assignment") {
        job.join("n2");
        CHECK(job.sent<Assignment>().at("n2") == assignment);
        job.pass(5s);
        CHECK(job.state.phase == Phase::kRunning);
    }
    SECTION("the abort") {
        job.fail("n1", failure(0, "n1"));
        CHECK(job.receivers<Abort>() == Hosts{"n1", "n3"});
        job.stopped("n1");
        job.stopped("n3");
        CHECK_FALSE(job.ends_job);
        job.join("n2");
        CHECK(job.sent<Abort>().at("n2") == Abort{Generation{1}, "rank 0 on n1 was killed by SIGKILL", 0, true});
        CHECK(job.receivers<Assignment>().empty());
        job.stopped("n2");
        CHECK(job.verdict().exit_code == 137);
    }
}

TEST_CASE("a lost node that reconnects is aborted and takes part only when it has stopped", "[coordinator]") {
    Job job = gone_on_without_n2();
    REQUIRE(job.receivers<Assignment>() == Hosts{"n1", "n3"});
    job.join("n2");
    CHECK(job.sent<Abort>().at("n2") == Abort{Generation{1}, "node n2 was lost"});
    CHECK(job.receivers<Abort>() == Hosts{"n2"});
    CHECK(job.state.phase == Phase::kRunning);
    job.say("n2", GroupStopped{Generation{1}});
    CHECK(job.receivers<Abort>() == Hosts{"n1", "n3"});
    CHECK(job.sent<Abort>().at("n1") == Abort{Generation{2}, "node n2 joined"});
}

TEST_CASE("a lost node that has reconnected but has not stopped yet is in no group", "[coordinator]") {
    Job job = gone_on_without_n2(1);
    job.join("n2");
    job.fail("n1", failure(0, "n1"));
    job.stopped("n1");
    job.stopped("n3");
    job.pass(200ms);  // both groups have ended soon after their start
    CHECK(job.opens(3));
    SECTION("too late") {
        job.store_opens();
        CHECK(job.receivers<Assignment>() == Hosts{"n1", "n3"});
    }
    SECTION("just in time") {
        job.say("n2", GroupStopped{Generation{1}});
        job.store_opens();
        CHECK(job.receivers<Assignment>() == Hosts{"n1", "n2", "n3"});
    }
}

TEST_CASE("a lost node that reconnects before the next group has the rank that it had", "[coordinator]") {
    Job job = three(1);
    job.fail("n3", failure(4, "n3"));
    job.stopped("n1");
    job.disconnect("n1");
    job.pass(2s);
    job.join("n1");
    CHECK(job.receivers<Waiting>() == Hosts{"n1"});
    job.stopped("n2");
    job.stopped("n3");
    job.store_opens();
    CHECK(job.sent<Assignment>().at("n1").node_rank == NodeRank{0});
}

TEST_CASE("survivors wait for the workers of a lost node that reconnects before the others have stopped",
          "[coordinator]") {
    Job job = three();
    job.disconnect("n2");
    job.pass(2s);
    job.join("n2");
    CHECK(job.receivers<Abort>() == Hosts{"n2"});
    job.stopped("n1");
    job.stopped("n3");
    CHECK(job.asked<OpenStore>().empty());
    job.stopped("n2");
    CHECK(job.opens(2));
}

TEST_CASE("a known node that may reconnect holds the round for its grace", "[coordinator]") {
    Job job({.min_nodes = 1, .max_nodes = 3, .max_restarts = 1});
    job.start({"n1", "n2", "n3"});
    job.fail("n1", failure(0, "n1"));
    job.stopped("n2");
    job.disconnect("n2");
    job.stopped("n3");
    job.stopped("n1");
    CHECK(job.asked<OpenStore>().empty());
    SECTION("it is back") {
        job.join("n2");
        CHECK(job.opens(2));
    }
    SECTION("it is lost") {
        job.pass(900ms);
        CHECK(job.asked<OpenStore>().empty());
        job.pass(100ms);
        CHECK(job.opens(2));
    }
}

TEST_CASE("a node takes over from its older connection, which the network has broken on its side alone",
          "[coordinator]") {
    Job job = three();
    const Assignment assignment = job.sent<Assignment>().at("n2");
    Join again = job.greeting("n2");
    if (GENERATE(true, false)) again.session = "session";  // its Welcome may have been lost with that connection
    job.join(again);
    CHECK(job.asked<Refuse>().empty());
    CHECK(job.receivers<Welcome>() == Hosts{"n2"});
    CHECK_FALSE(job.sent<Welcome>().at("n2").lost);
    CHECK(job.sent<Assignment>().at("n2") == assignment);
    job.pass(10s);
    CHECK(job.state.phase == Phase::kRunning);
    again.session = "another";
    job.join(again);
    CHECK_THAT(job.asked<Refuse>().at(0).reason, Catch::Contains("not the daemon that the job was started with"));
}

TEST_CASE("a connection that the network has broken has the time of a silent one", "[coordinator]") {
    Job job = three(1);
    job.pass(500ms);
    job.feed(NodeDisconnected{"n2", true});
    CHECK_THAT(job.reason, Catch::Contains("broke; it may reconnect within 3.0 s"));
    job.pass(2900ms);
    CHECK(job.receivers<Abort>().empty());
    SECTION("in which it comes back") {
        job.join("n2");
        CHECK(job.receivers<Assignment>() == Hosts{"n2"});
    }
    SECTION("then it is lost, and has to stop at once if it comes back") {
        job.pass(100ms);
        CHECK(job.sent<Abort>().at("n1").reason == "node n2 was lost: the connection broke");
        Join again = job.greeting("n2");
        again.session = "session";
        if (GENERATE(false, true)) job.state.nodes.erase("n2");  // as when many more were lost
        job.join(again);
        CHECK(job.sent<Welcome>().at("n2").lost);
    }
}

TEST_CASE("the only node of a job is waited for as long as it waits for the daemon", "[coordinator]") {
    Job job({.min_nodes = 1, .max_nodes = 1});
    job.start({"n1"});
    job.silent = {"n1"};
    job.pass(29s);
    CHECK_FALSE(job.ends_job);
    SECTION("it is heard again") {
        job.silent.clear();
        job.pass(10s);
        CHECK(job.state.phase == Phase::kRunning);
    }
    SECTION("it is lost") {
        job.pass(1s);
        CHECK(job.verdict().exit_code == 69);
        CHECK_THAT(job.verdict().reason, Catch::Contains("no message for 30 s"));
    }
}

TEST_CASE("each Welcome to a lost node says that it was lost until its processes have ended", "[coordinator]") {
    Job job = gone_on_without_n2(1);
    for (int connection = 0; connection < 3; ++connection) {  // the Welcome may be lost with the connection
        job.join("n2");
        CHECK(job.sent<Welcome>().at("n2").lost);
        CHECK(job.sent<Abort>().at("n2") == Abort{Generation{1}, "node n2 was lost"});
        if (connection == 0) job.disconnect("n2");
    }
    job.say("n2", GroupStopped{Generation{1}});
    job.disconnect("n2");
    job.join("n2");
    CHECK_FALSE(job.sent<Welcome>().at("n2").lost);
}

TEST_CASE("a daemon that hears no node at all is cut off itself, and waits for them as long as they wait for it",
          "[coordinator]") {
    Job job = three(1);
    job.pass(1s);
    if (GENERATE(true, false)) {  // n1 has spoken half an interval before the others
        job.silent = {"n1"};
        job.pass(500ms);
    }
    job.silent = {"n1", "n2", "n3"};
    job.pass(20s);
    CHECK(job.state.phase == Phase::kRunning);
    SECTION("all are back") {
        job.silent.clear();
        job.pass(5s);
        CHECK(job.state.phase == Phase::kRunning);
    }
    SECTION("one is back, and the others have the usual time to be back as well") {
        job.silent = {"n1", "n2"};
        job.pass(2900ms);
        CHECK(job.state.phase == Phase::kRunning);
        job.pass(300ms);
        CHECK(job.sent<Abort>().at("n3").reason == "node n1 was lost: no message for 3 s");
    }
    SECTION("none is back") {
        job.pass(kHoldsOfSearch * job.state.config.hold - 20s);
        CHECK(job.verdict().exit_code == 69);
    }
}
