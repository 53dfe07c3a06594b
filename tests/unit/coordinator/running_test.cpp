#include "common/exit_codes.hpp"
#include <fmt/format.h>

#include "tests/catch.hpp"
#include "tests/unit/coordinator/job.hpp"

using namespace ddprun;
using namespace ddprun::coordinator;
using Catch::Contains;

TEST_CASE("the job succeeds when every node has", "[coordinator]") {
    Job job;
    job.start({"n1", "n2"});
    job.succeeded("n2");
    CHECK(job.actions.empty());  // parked
    job.pass(20s);
    CHECK(job.told<Waiting>().empty());
    job.succeeded("n1");
    CHECK(job.closes(1));
    CHECK(job.told<Finished>() == Hosts{"n1", "n2"});
    CHECK(job.verdict().outcome == Outcome::kSucceeded);
    CHECK(job.verdict().exit_code == 0);
    CHECK(job.verdict().restarts == 0);
}

TEST_CASE("a failure without a restart left stops everybody and names rank, host and signal", "[coordinator]") {
    Job job({.slots = 2});
    job.start({"n1", "n2"});
    job.fail("n2", failure(3, "n2"));
    CHECK(job.told<Abort>() == Hosts{"n1", "n2"});
    CHECK(job.sent<Abort>().at("n1") == Abort{Generation{1}, "rank 3 on n2 was killed by SIGKILL"});
    job.stopped("n2");
    CHECK(job.asked<FinishJob>().empty());  // n1 still has processes
    CHECK(job.asked<CloseStore>().empty());
    job.stopped("n1");
    CHECK(job.closes(1));
    CHECK(job.verdict().outcome == Outcome::kWorkerFailed);
    CHECK(job.verdict().exit_code == 137);
    CHECK(job.verdict().reason == "rank 3 on n2 was killed by SIGKILL");
    CHECK(job.verdict().culprit == failure(3, "n2"));
    CHECK(job.told<Finished>() == Hosts{"n1", "n2"});
    CHECK(job.state.phase == Phase::kFinished);
}

TEST_CASE("a failure by a deadline is concluded when it is judged, and its verdict has the line", "[coordinator]") {
    Job job;
    job.start({"n1", "n2"});
    job.feed(Judging{Generation{1}, job.now});
    job.fail("n1", failure(0, "n1"));
    job.stopped("n1");
    job.stopped("n2");
    CHECK(job.asked<FinishJob>().empty());
    SECTION("it is judged") {
        job.feed(Judged{Generation{1}, "LAGGING rank 1", job.now});
        CHECK(job.verdict().judged == "LAGGING rank 1");
    }
    SECTION("it never is") {
        job.pass(1900ms);
        CHECK(job.asked<FinishJob>().empty());
        job.pass(100ms);
        CHECK(job.verdict().judged == "");
    }
    CHECK(job.verdict().reason == "rank 0 on n1 was killed by SIGKILL");
}

TEST_CASE("who failed first of what another rank did is told apart from that one, and the hint goes along",
          "[coordinator]") {
    Job job;
    job.start({"n1", "n2"});
    job.feed(Judging{Generation{1}, job.now});
    job.fail("n1", failure(0, "n1"));
    const auto blamed = GENERATE(values<std::vector<int>>({{1}, {0, 1}, {}}));
    job.feed(Judged{Generation{1}, "LAGGING rank 1", job.now, {}, {}, "Look at it", blamed});
    job.stopped("n1");
    job.stopped("n2");
    CHECK(job.verdict().hint == "Look at it");
    CHECK(job.verdict().bystander == (blamed == std::vector<int>{1}));
}

TEST_CASE("what was judged is the reason of a restart, and no matter to what fails long after, or in another group",
          "[coordinator]") {
    Job job({.max_restarts = 1});
    job.start({"n1", "n2"});
    job.feed(Judging{Generation{1}, job.now});
    job.feed(Judged{Generation{1}, "LAGGING rank 1", job.now});
    const bool long_after = GENERATE(true, false);
    if (long_after) job.pass(31s);
    job.fail("n1", failure(0, "n1"));
    job.stopped("n1");
    job.stopped("n2");
    job.store_opens();
    const std::string reason = job.sent<Assignment>().at("n2").reason;
    CHECK((reason.find("; LAGGING rank 1") == std::string::npos) == long_after);
    job.feed(Judged{Generation{1}, "LAGGING rank 1", job.now});
    job.fail("n1", failure(0, "n1"));
    job.stopped("n1");
    job.stopped("n2");
    CHECK(job.verdict().judged == "");
}

TEST_CASE("what a dead worker was in stands in the verdict or, without naming it again, in the reason of the restart",
          "[coordinator]") {
    Job job({.max_restarts = 1, .slots = 2});
    job.start({"n1", "n2"});
    job.fail("n2", failure(3, "n2"));
    job.feed(Judging{Generation{1}, job.now});
    const int dead = GENERATE(3, 2);
    job.feed(Judged{Generation{1}, "DEAD rank 3 (node n2): in #7", job.now, Rank{dead}, "in #7"});
    job.stopped("n1");
    job.stopped("n2");
    job.store_opens();
    const bool of_another = dead != 3;
    CHECK(job.sent<Assignment>().at("n2").reason ==
          (of_another ? "rank 3 on n2 was killed by SIGKILL" : "rank 3 on n2 was killed by SIGKILL; in #7"));
    job.fail("n2", failure(3, "n2"));
    job.feed(Judging{Generation{2}, job.now});
    job.feed(Judged{Generation{2}, "DEAD rank 3 (node n2): in #7", job.now, Rank{dead}, "in #7"});
    job.feed(Judged{Generation{2}, "", job.now});  // of a deadline that did not tell
    job.stopped("n1");
    job.stopped("n2");
    CHECK(job.verdict().judged == (of_another ? "" : "DEAD rank 3 (node n2): in #7"));
}

TEST_CASE("a failure with a restart left starts everybody again, with the same ranks and without a last call",
          "[coordinator]") {
    Job job({.min_nodes = 2, .max_nodes = 3, .max_restarts = 1});
    job.join("n1");
    job.join("n2");
    job.pass(30s);
    job.store_opens(4001);
    job.fail("n1", failure(0, "n1"));
    const std::string why = job.sent<Abort>().at("n2").reason;
    job.stopped("n1");
    job.stopped("n2");
    REQUIRE(job.actions.size() == 2);
    CHECK(std::get<CloseStore>(job.actions.at(0)) == CloseStore{Generation{1}});  // before the next one is opened
    CHECK(std::get<OpenStore>(job.actions.at(1)) == OpenStore{Generation{2}});
    CHECK_THAT(job.reason, Contains("restart 1 of 1"));
    job.store_opens(4002);
    CHECK(job.sent<Assignment>().at("n1") == Assignment{Generation{2}, NodeRank{0}, 2, 0, 2, "", 4002, 1, 1, why, 1});
    CHECK(job.sent<Assignment>().at("n2") == Assignment{Generation{2}, NodeRank{1}, 2, 1, 2, "", 4002, 1, 1, why, 1});

    job.fail("n2", failure(1, "n2", {ExitStatus::Kind::kExited, 3, false}));
    job.stopped("n1");
    job.stopped("n2");
    CHECK(job.verdict().exit_code == 3);
    CHECK(job.verdict().restarts == 1);
    CHECK_THAT(job.verdict().reason, Contains("exited with code 3") && Contains("--max-restarts 1"));
}

TEST_CASE("the first failure received is the culprit and one failure spends one restart", "[coordinator]") {
    Job job({.max_restarts = 1});
    job.start({"n1", "n2"});
    job.fail("n2", failure(1, "n2"));
    job.fail("n1", failure(0, "n1"));
    job.fail("n2", failure(1, "n2"));
    CHECK(job.actions.empty());
    job.stopped("n1");
    job.stopped("n2");
    CHECK(job.state.restarts_spent == 1);
    CHECK(job.state.cause.failure == failure(1, "n2"));
}

TEST_CASE("a killed worker is the culprit though a peer that failed of it was reported first", "[coordinator]") {
    Job job;
    job.start({"n1", "n2"});
    const FailureReport consequence = failure(1, "n2", {ExitStatus::Kind::kExited, 1, false});
    job.fail("n2", consequence);
    const bool in_time = GENERATE(true, false);
    job.pass(in_time ? 900ms : 1200ms);
    job.fail("n1", failure(0, "n1"));
    job.stopped("n2");
    job.stopped("n1");
    CHECK(job.verdict().culprit == (in_time ? failure(0, "n1") : consequence));
    CHECK(job.verdict().exit_code == (in_time ? 137 : 1));
}

TEST_CASE("a peer that gives up is never the culprit of a death before it", "[coordinator]") {
    Job job;
    job.start({"n1", "n2"});
    job.fail("n2", failure(1, "n2"));
    const auto later = GENERATE(ExitStatus{ExitStatus::Kind::kExited, 1, false},
                                ExitStatus{ExitStatus::Kind::kSignaled, SIGABRT, true},
                                ExitStatus{ExitStatus::Kind::kSignaled, SIGSEGV, true});
    job.fail("n1", failure(0, "n1", later));
    job.stopped("n2");
    job.stopped("n1");
    CHECK(job.verdict().culprit == failure(1, "n2"));
}

TEST_CASE("a failure report with code 0 never makes a success", "[coordinator]") {
    Job job({.min_nodes = 1, .max_nodes = 1});
    job.start({"n1"});
    job.fail("n1", failure(0, "n1", {}));
    job.stopped("n1");
    CHECK(job.verdict().outcome == Outcome::kWorkerFailed);
    CHECK(job.verdict().exit_code == 1);
}

TEST_CASE("the first line of a failure's message is part of the reason", "[coordinator]") {
    Job job({.min_nodes = 1, .max_nodes = 1});
    job.start({"n1"});
    FailureReport report = failure(0, "n1", {ExitStatus::Kind::kExited, 127, false});
    report.message = "no such program: trian\nmore";
    job.fail("n1", report);
    job.stopped("n1");
    CHECK(job.verdict().reason == "rank 0 on n1 could not be started: no such program: trian");
    CHECK(job.verdict().exit_code == 127);
}

TEST_CASE("a failure after some nodes have finished restarts these too", "[coordinator]") {
    Job job({.max_restarts = 1});
    job.start({"n1", "n2"});
    job.succeeded("n1");
    job.fail("n2", failure(1, "n2"));
    CHECK(job.told<Abort>() == Hosts{"n2"});  // the parked node has nothing to stop
    job.stopped("n2");
    CHECK(job.opens(2));
    job.store_opens();
    CHECK(job.told<Assignment>() == Hosts{"n1", "n2"});
    job.succeeded("n2");
    CHECK(job.asked<FinishJob>().empty());  // the success of n1 belonged to generation 1
    job.succeeded("n1");
    CHECK(job.verdict().exit_code == 0);
    CHECK(job.verdict().restarts == 1);
}

TEST_CASE("messages of another generation, or of no meaning at this moment, are ignored with a reason",
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

TEST_CASE("a node that stops its workers on its own makes everybody start again without spending a restart",
          "[coordinator]") {
    Job job({.max_restarts = 0});
    job.start({"n1", "n2"});
    job.stopped("n2");
    CHECK(job.sent<Abort>().at("n1").reason == "node n2 stopped its workers");
    job.stopped("n1");
    CHECK(job.opens(2));
    CHECK(job.state.restarts_spent == 0);
}

TEST_CASE("a new node makes a running group grow while there is room", "[coordinator]") {
    Job job({.min_nodes = 1, .max_nodes = 3});
    job.join("n2");
    job.join("n4");
    job.pass(30s);
    job.store_opens();
    REQUIRE(job.state.phase == Phase::kRunning);
    job.join("n1");
    CHECK(job.told<Abort>() == Hosts{"n2", "n4"});
    CHECK(job.sent<Abort>().at("n2").reason == "node n1 joined");
    CHECK_THAT(job.sent<Waiting>().at("n1").reason, Contains("node n1 joined") && Contains("still stopping: n2, n4"));
    job.stopped("n2");
    job.stopped("n4");
    CHECK(job.opens(2));
    job.store_opens();
    CHECK(job.state.restarts_spent == 0);
    CHECK(job.sent<Assignment>().at("n2").node_rank == NodeRank{0});  // survivors keep their order, newcomers follow
    CHECK(job.sent<Assignment>().at("n4").node_rank == NodeRank{1});
    CHECK(job.sent<Assignment>().at("n1").node_rank == NodeRank{2});
    CHECK(job.sent<Assignment>().at("n1").restart_count == 1);
    CHECK(job.sent<Assignment>().at("n1").restart == 0);  // it spends none of --max-restarts, whose number this is
    job.succeeded("n1");
    job.succeeded("n2");
    job.succeeded("n4");
    CHECK(job.verdict().restarts == 0);
}

TEST_CASE("a group that is started again for another reason than a failure is no restart of those allowed",
          "[coordinator]") {
    Job job({.max_restarts = 1});
    job.start({"n1", "n2"});
    job.fail("n1", failure(0, "n1"));
    job.stopped("n1");
    job.stopped("n2");
    job.store_opens();
    CHECK(job.sent<Assignment>().at("n1").restart == 1);
    job.stopped("n2");  // on its own
    job.stopped("n1");
    job.store_opens();
    CHECK(job.sent<Assignment>().at("n1").restart_count == 2);
    CHECK(job.sent<Assignment>().at("n1").restart == 0);
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
    CHECK(job.told<Abort>().empty());
    CHECK_THAT(job.sent<Waiting>().at("n3").reason, Contains("spare") && Contains("finished"));
    SECTION("the job succeeds and the spare hears it") {
        job.succeeded("n2");
        CHECK(job.told<Finished>() == Hosts{"n1", "n2", "n3"});
        CHECK(job.verdict().exit_code == 0);
    }
    SECTION("a failure takes the spare in") {
        job.fail("n2", failure(1, "n2"));
        job.stopped("n2");
        job.store_opens();
        CHECK(job.told<Assignment>() == Hosts{"n1", "n2", "n3"});
    }
}

TEST_CASE("members told to stop when all of them had just finished have finished", "[coordinator]") {
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
    CHECK(job.told<Finished>() == Hosts{"n1", "n2", "n3"});
}

TEST_CASE("after the end strangers are refused and whoever missed the verdict hears it", "[coordinator]") {
    Job job;
    job.start({"n1", "n2"});
    job.succeeded("n1");
    job.disconnect("n2");
    job.join("n2");
    job.succeeded("n2");
    REQUIRE(job.verdict().exit_code == 0);
    job.join("n3");
    CHECK_THAT(job.asked<Refuse>().at(0).reason, Contains("the job is over"));
    job.disconnect("n1");
    job.join("n1");
    CHECK(job.told<Finished>() == Hosts{"n1"});
    CHECK(job.told<Welcome>() == Hosts{"n1"});
    job.stopped("n1");
    job.leave("n1");
    job.pass(10s);
    CHECK(job.actions.empty());
}

TEST_CASE("a worker that fails after a peer has finished early: the verdict says who was gone, and since when",
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
    const bool own_fault = status.kind == ExitStatus::Kind::kSignaled;  // nobody crashes because a peer is gone
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

TEST_CASE("a finished worker that is told of again after its node has finished counts once", "[coordinator]") {
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

TEST_CASE("what a node could not start for want of its own is no failure of the program", "[coordinator]") {
    const int code = GENERATE(69, 70);
    Job job;
    job.start({"n1", "n2"});
    FailureReport report = failure(1, "n2", {ExitStatus::Kind::kExited, code, false});
    report.message = "cannot fork: Resource temporarily unavailable";
    const bool ran = GENERATE(false, true);  // a program may use these numbers for itself
    report.pid = ran ? 4711 : 0;
    job.fail("n2", report);
    job.stopped("n1");
    job.stopped("n2");
    CHECK(job.verdict().exit_code == code);
    CHECK(job.verdict().outcome == (ran ? Outcome::kWorkerFailed : Outcome::kInfrastructure));
    CHECK(job.verdict().culprit == report);
    CHECK_THAT(job.verdict().reason,
               Contains(ran ? "rank 1 on n2 exited" : "the agent on n2 could not start rank 1: cannot fork"));
}
