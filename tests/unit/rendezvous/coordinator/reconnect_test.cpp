// Nodes that reconnect, within their grace or later.
#include "tests/catch.hpp"
#include "tests/unit/rendezvous/coordinator/job.hpp"

using namespace ddprun;
using namespace ddprun::protocol;
using namespace ddprun::coordinator;

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
    Job job = three();
    job.disconnect("n2");
    job.pass(2s);
    job.stopped("n1");
    job.stopped("n3");
    job.store_opens();
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
    Job job = three(1);
    job.disconnect("n2");
    job.pass(2s);
    job.stopped("n1");
    job.stopped("n3");
    job.store_opens();
    job.join("n2");
    job.fail("n1", failure(0, "n1"));
    job.stopped("n1");
    job.stopped("n3");
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
