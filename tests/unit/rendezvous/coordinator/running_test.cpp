// A group that runs: it succeeds, grows, is restarted, ends.
#include <fmt/format.h>
#include "common/exit_codes.hpp"

#include "tests/catch.hpp"
#include "tests/unit/rendezvous/coordinator/job.hpp"

using namespace ddprun;
using namespace ddprun::protocol;
using namespace ddprun::coordinator;
using Catch::Contains;

TEST_CASE("a new group gets the greatest step that the groups before it have begun", "[coordinator]") {
    Job job(Shape{.min_nodes = 2, .max_nodes = 2, .max_restarts = 2});
    job.start({"n1", "n2"});
    CHECK(job.sent<Assignment>().at("n1").steps_before == std::nullopt);
    job.fail("n1", failure(0, "n1"));
    job.say("n1", GroupStopped{Generation{1}, 41});
    job.say("n2", GroupStopped{Generation{1}, 40});
    job.restart();
    CHECK(job.sent<Assignment>().at("n2").steps_before == 41U);
    job.fail("n1", failure(0, "n1"));
    job.say("n1", GroupStopped{Generation{2}, 30});  // it had not come as far again
    job.say("n2", GroupStopped{Generation{2}});
    job.restart();
    CHECK(job.sent<Assignment>().at("n1").steps_before == 41U);
    job.say("n1", GroupSucceeded{Generation{3}, false, 90});
    job.fail("n2", failure(1, "n2"));
    CHECK(job.state.latest_step == 90U);
}

TEST_CASE("the job succeeds when every node has", "[coordinator]") {
    Job job;
    job.start({"n1", "n2"});
    job.succeeded("n2");
    CHECK(job.actions.empty());  // parked
    job.pass(20s);
    CHECK(job.receivers<Waiting>().empty());
    job.succeeded("n1");
    CHECK(job.closes(1));
    CHECK(job.receivers<Finished>() == Hosts{"n1", "n2"});
    CHECK(job.verdict().outcome == Outcome::kSucceeded);
    CHECK(job.verdict().exit_code == 0);
    CHECK(job.verdict().restarts == 0);
}

TEST_CASE("a failure after some nodes have finished restarts these too", "[coordinator]") {
    Job job({.max_restarts = 1});
    job.start({"n1", "n2"});
    job.succeeded("n1");
    job.fail("n2", failure(1, "n2"));
    CHECK(job.receivers<Abort>() == Hosts{"n2"});  // the parked node has nothing to stop
    job.stopped("n2");
    CHECK(job.opens(2));
    job.store_opens();
    CHECK(job.receivers<Assignment>() == Hosts{"n1", "n2"});
    job.succeeded("n2");
    CHECK_FALSE(job.ends_job);  // the success of n1 belonged to generation 1
    job.succeeded("n1");
    CHECK(job.verdict().exit_code == 0);
    CHECK(job.verdict().restarts == 1);
}

TEST_CASE("messages of another generation, or without a meaning at this moment, are ignored with a reason",
          "[coordinator]") {
    Job job({.max_restarts = 1});
    job.join("n1");
    for (const AgentMessage& message : std::vector<AgentMessage>{
             GroupStopped{Generation{0}}, GroupStopped{Generation{1}}, GroupSucceeded{Generation{0}},
             GroupSucceeded{Generation{9}}, WorkerFailed{Generation{0}, failure(0, "n1")}}) {
        job.say("n1", message);
        CHECK(job.actions.empty());
        CHECK_FALSE(job.reason.empty());
    }
    job.join("n2");
    job.store_opens();
    for (const int generation : {0, 2, -1}) {
        job.say("n1", WorkerFailed{Generation{generation}, failure(0, "n1")});
        job.say("n1", GroupStopped{Generation{generation}});
        job.say("n1", GroupSucceeded{Generation{generation}});
        CHECK(job.actions.empty());
    }
    job.say("stranger", GroupStopped{Generation{1}});
    job.say("stranger", Leave{SIGTERM});
    job.disconnect("stranger");
    CHECK(job.actions.empty());
    CHECK(job.state.phase == Phase::kRunning);

    job.succeeded("n1");
    job.say("n1", WorkerFailed{Generation{1}, failure(0, "n1")});  // after its success
    job.say("n1", GroupStopped{Generation{1}});
    CHECK(job.actions.empty());
    CHECK(job.state.phase == Phase::kRunning);
}

TEST_CASE("a node that stops its workers on its own restarts all nodes without spending a restart", "[coordinator]") {
    Job job({.max_restarts = 0});
    job.start({"n1", "n2"});
    job.stopped("n2");
    CHECK(job.sent<Abort>().at("n1").reason == "node n2 stopped its workers");
    job.stopped("n1");
    CHECK(job.opens(2));
    CHECK(restarts_spent(job.state) == 0);
}

TEST_CASE("a new node makes a running group grow while there is room", "[coordinator]") {
    Job job({.min_nodes = 1, .max_nodes = 3});
    job.join("n2");
    job.join("n4");
    job.pass(30s);
    job.store_opens();
    REQUIRE(job.state.phase == Phase::kRunning);
    job.join("n1");
    CHECK(job.receivers<Abort>() == Hosts{"n2", "n4"});
    CHECK(job.sent<Abort>().at("n2").reason == "node n1 joined");
    CHECK_THAT(job.sent<Waiting>().at("n1").reason, Contains("node n1 joined") && Contains("still stopping: n2, n4"));
    job.stopped("n2");
    job.stopped("n4");
    CHECK(job.opens(2));
    job.store_opens();
    CHECK(restarts_spent(job.state) == 0);
    CHECK(job.sent<Assignment>().at("n2").node_rank == NodeRank{0});  // survivors keep their order, newcomers follow
    CHECK(job.sent<Assignment>().at("n4").node_rank == NodeRank{1});
    CHECK(job.sent<Assignment>().at("n1").node_rank == NodeRank{2});
    CHECK(job.sent<Assignment>().at("n1").restart_count == 1);
    CHECK_FALSE(job.sent<Assignment>().at("n1").restart);  // it spends none of --max-restarts, which this counts
    job.succeeded("n1");
    job.succeeded("n2");
    job.succeeded("n4");
    CHECK(job.verdict().restarts == 0);
}

TEST_CASE("a group that is restarted for another reason than a failure spends no restart", "[coordinator]") {
    Job job({.max_restarts = 1});
    job.start({"n1", "n2"});
    job.fail("n1", failure(0, "n1"));
    job.stopped("n1");
    job.stopped("n2");
    job.store_opens();
    CHECK(job.sent<Assignment>().at("n1").restart == Restart{1, 1});
    job.stopped("n2");  // on its own
    job.stopped("n1");
    job.store_opens();
    CHECK(job.sent<Assignment>().at("n1").restart_count == 2);
    CHECK_FALSE(job.sent<Assignment>().at("n1").restart);
    job.succeeded("n1");
    job.succeeded("n2");
    CHECK(job.verdict().restarts == 1);
}

TEST_CASE("a new node waits as a spare when some nodes have finished already", "[coordinator]") {
    Job job({.min_nodes = 2, .max_nodes = 3, .max_restarts = 1});
    job.join("n1");
    job.join("n2");
    job.pass(30s);
    job.store_opens();
    job.succeeded("n1");
    job.join("n3");
    CHECK(job.receivers<Abort>().empty());
    CHECK_THAT(job.sent<Waiting>().at("n3").reason, Contains("spare") && Contains("finished"));
    SECTION("the job succeeds and the spare hears it") {
        job.succeeded("n2");
        CHECK(job.receivers<Finished>() == Hosts{"n1", "n2", "n3"});
        CHECK(job.verdict().exit_code == 0);
    }
    SECTION("a failure takes the spare in") {
        job.fail("n2", failure(1, "n2"));
        job.stopped("n2");
        job.store_opens();
        CHECK(job.receivers<Assignment>() == Hosts{"n1", "n2", "n3"});
    }
}

TEST_CASE("members that are aborted when all of them had just finished count as finished", "[coordinator]") {
    Job job({.min_nodes = 1, .max_nodes = 3});
    job.join("n1");
    job.join("n2");
    job.pass(30s);
    job.store_opens();
    job.join("n3");
    REQUIRE(job.state.phase == Phase::kStopping);
    job.succeeded("n1");
    job.succeeded("n2");
    CHECK(job.verdict().outcome == Outcome::kSucceeded);
    CHECK(job.receivers<Finished>() == Hosts{"n1", "n2", "n3"});
}

TEST_CASE("after the end new nodes are refused, and a node that missed the verdict gets it", "[coordinator]") {
    Job job;
    job.start({"n1", "n2"});
    job.succeeded("n1");
    job.disconnect("n2");
    job.join("n2");
    job.succeeded("n2");
    REQUIRE(job.verdict().exit_code == 0);
    job.join("n3");
    CHECK_THAT(job.asked<Refuse>().at(0).reason, Contains("the job is over"));
    CHECK(job.asked<Refuse>().at(0).try_again);  // it may belong to the next job at this endpoint
    job.disconnect("n1");
    job.join("n1");
    CHECK(job.receivers<Finished>() == Hosts{"n1"});
    CHECK(job.receivers<Welcome>() == Hosts{"n1"});
    job.stopped("n1");
    job.leave("n1");
    job.pass(10s);
    CHECK(job.actions.empty());
}

TEST_CASE("a worker that fails after a peer has finished early: the verdict says which rank had left, and when",
          "[coordinator]") {
    Job job({.slots = 2});
    job.start({"n1", "n2"});
    const ExitStatus status = GENERATE(ExitStatus{ExitStatus::Kind::kExited, 1, false},
                                       ExitStatus{ExitStatus::Kind::kSignaled, SIGSEGV, false});
    job.say("n1", WorkerFinished{job.state.generation, Rank{0}});
    job.say("n1", WorkerFinished{job.state.generation, Rank{3}});  // not one of its own
    CHECK(job.actions.empty());
    job.pass(400ms);
    job.fail("n2", failure(3, "n2", status));
    job.stopped("n1");
    job.stopped("n2");
    CHECK(job.verdict().exit_code == status.exit_code());
    const std::string early = "; rank 0 had already exited with code 0, 0.4 s before";
    const bool own_fault = status.kind == ExitStatus::Kind::kSignaled;  // a missing peer causes no crash
    CHECK(job.verdict().reason == fmt::format("rank 3 on n2 {}{}", to_string(status), own_fault ? "" : early));
}

TEST_CASE("a whole node that had finished is named by its ranks", "[coordinator]") {
    Job job({.min_nodes = 3, .max_nodes = 3, .slots = 2});
    job.start({"n1", "n2", "n3"});
    job.say("n2", WorkerFinished{job.state.generation, Rank{3}});
    job.pass(2s);
    job.succeeded("n2");
    job.say("n3", WorkerFinished{job.state.generation, Rank{5}});
    job.fail("n1", failure(0, "n1", {ExitStatus::Kind::kExited, 7, false}));
    CHECK_THAT(job.sent<Abort>().at("n1").reason,
               Contains("ranks 2-3, 5 had already exited with code 0, the first 0 ms before"));
}

TEST_CASE("a finished worker that is reported again after its node has finished counts once", "[coordinator]") {
    Job job({.slots = 2});
    job.start({"n1", "n2"});
    const WorkerFinished finished{job.state.generation, Rank{3}};
    job.say("n2", finished);
    job.succeeded("n2");
    job.disconnect("n2");
    job.join("n2");
    job.say("n2", finished);
    job.succeeded("n2");
    job.fail("n1", failure(0, "n1", {ExitStatus::Kind::kExited, 7, false}));
    CHECK_THAT(job.sent<Abort>().at("n1").reason, Contains("; ranks 2-3 had already exited with code 0"));
}

TEST_CASE("a signal for the workers is forwarded to the other members of the running group", "[coordinator]") {
    Job job({.min_nodes = 2, .max_nodes = 3});
    job.start({"n1", "n2", "n3"});
    job.join("n4");
    const Notify notify{job.state.generation, SIGUSR1};
    job.say("n2", notify);
    CHECK(job.receivers<Notify>() == Hosts{"n1", "n3"});
    CHECK(job.sent<Notify>().at("n1") == Notify{job.state.generation, SIGUSR1, 1});
    SECTION("again to a member that reconnects: its older connection may have been broken") {
        job.pass(500ms);
        job.disconnect("n3");
        job.join("n3");
        CHECK(job.sent<Notify>().at("n3") == Notify{job.state.generation, SIGUSR1, 1, 500ms});
        job.disconnect("n3");
        job.say("n2", notify);
        CHECK(job.receivers<Notify>() == Hosts{"n1"});
        job.join("n3");
        CHECK(job.sent<Notify>().at("n3").number == 2);
        job.disconnect("n2");
        job.join("n2");
        CHECK(job.receivers<Notify>().empty());  // it got the signal itself
    }
    SECTION("also much later: a cut towards the node shows itself only by its missing answers") {
        job.pass(2 * job.state.config.lost_after);
        job.disconnect("n3");
        job.join("n3");
        CHECK(job.receivers<Notify>() == Hosts{"n3"});
    }
    SECTION("but not when it must have arrived") {
        job.pass(job.state.config.hold + job.state.config.lost_after + kTickInterval);
        job.disconnect("n3");
        job.join("n3");
        CHECK(job.receivers<Notify>().empty());
    }
    SECTION("once if several nodes get it, and twice if one node gets it twice") {
        for (const char* host : {"n1", "n3"}) {
            job.say(host, notify);
            CHECK(job.receivers<Notify>().empty());
        }
        job.say("n2", notify);
        CHECK(job.sent<Notify>().at("n3").number == 2);
        job.pass(1s);
        Notify known = notify;
        known.known = true;  // the second of n2's: its agent compares with its own clock
        job.say("n3", known);
        CHECK(job.receivers<Notify>().empty());
        job.say("n3", notify);
        CHECK(job.sent<Notify>().at("n2").number == 3);
    }
    SECTION("but not to one without workers") {
        job.succeeded("n3");
        job.pass(1s);
        job.say("n3", notify);  // parked: it is a member all the same
        CHECK(job.receivers<Notify>() == Hosts{"n1", "n2"});
        job.pass(1s);
        job.say("n1", notify);
        CHECK(job.receivers<Notify>() == Hosts{"n2"});
    }
    SECTION("unless the message is not valid") {
        for (const int signal : {SIGKILL, SIGTERM, SIGSTOP, SIGWINCH}) {
            job.say("n1", Notify{job.state.generation, signal});
            CHECK(job.receivers<Notify>().empty());
        }
        job.say("n4", notify);  // a spare
        CHECK(job.receivers<Notify>().empty());
        job.say("n1", Notify{Generation{7}, SIGUSR1});
        CHECK(job.receivers<Notify>().empty());
        job.fail("n1", failure(0, "n1"));
        job.say("n2", notify);
        CHECK(job.receivers<Notify>().empty());
    }
}
