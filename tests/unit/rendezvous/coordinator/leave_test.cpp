#include "tests/catch.hpp"
#include "tests/unit/rendezvous/coordinator/job.hpp"

using namespace ddprun;
using namespace ddprun::protocol;
using namespace ddprun::coordinator;
using Catch::Contains;

TEST_CASE("when a node is signaled the others go on if they are enough, without spending a restart", "[coordinator]") {
    Job job({.min_nodes = 2, .max_nodes = 3});
    job.start({"n1", "n2", "n3"});
    job.leave("n1");
    CHECK(job.receivers<Abort>() == Hosts{"n1", "n2", "n3"});
    CHECK(job.sent<Abort>().at("n2").reason == "node n1 was interrupted by SIGTERM");
    CHECK(job.sent<Abort>().at("n2").signal == 0);  // the others do not end
    job.stopped("n1");
    CHECK(job.sent<Finished>().at("n1").verdict.outcome == Outcome::kStopped);  // without waiting for the others
    CHECK(job.sent<Finished>().at("n1").verdict.exit_code == 143);
    CHECK(job.asked<Disconnect>() == std::vector{Disconnect{"n1"}});
    job.stopped("n2");
    job.stopped("n3");
    CHECK(job.opens(2));
    job.store_opens();
    CHECK(job.sent<Assignment>().at("n2").node_rank == NodeRank{1});  // n3, whose rank is too high now, moves
    CHECK(job.sent<Assignment>().at("n3").node_rank == NodeRank{0});
    CHECK(restarts_spent(job.state) == 0);
}

TEST_CASE("when a node is signaled and too few are left, the job is stopped", "[coordinator]") {
    Job job({.min_nodes = 2, .max_nodes = 3});
    job.join("n1");
    job.join("n2");
    job.pass(30s);
    job.store_opens();
    job.leave("n2", SIGINT);
    CHECK(job.receivers<Abort>() == Hosts{"n1", "n2"});
    CHECK(job.sent<Abort>().at("n1").signal == SIGINT);
    job.stopped("n2");
    CHECK(job.actions.empty());  // it gets the verdict with the others
    job.stopped("n1");
    CHECK(job.closes(1));
    CHECK(job.verdict().outcome == Outcome::kStopped);
    CHECK(job.verdict().exit_code == 130);
    CHECK(job.verdict().reason ==
          "node n2 was interrupted by SIGINT, which ends the job (--nnodes 2:3): 2 workers stopped on 2 nodes");
    CHECK(job.receivers<Finished>() == Hosts{"n1", "n2"});
}

TEST_CASE("Ctrl-C on every node ends the job as stopped, whatever the order of the messages", "[coordinator]") {
    const int min_nodes = GENERATE(1, 2, 3);
    const bool answers_first = GENERATE(false, true);
    CAPTURE(min_nodes, answers_first);
    Job job({.min_nodes = min_nodes, .max_nodes = 3, .max_restarts = 3});
    job.start({"n1", "n2", "n3"});
    std::vector<Verdict> verdicts;
    const auto note = [&] {
        if (job.ends_job) verdicts.push_back(job.verdict());
    };
    for (const char* host : {"n1", "n2", "n3"}) {
        job.leave(host, SIGINT);
        note();
        if (answers_first) job.stopped(host);
        note();
    }
    for (const char* host : {"n1", "n2", "n3"}) {
        job.stopped(host);
        note();
    }
    REQUIRE(verdicts.size() == 1);
    CHECK(verdicts.front().outcome == Outcome::kStopped);
    CHECK(verdicts.front().exit_code == 130);
    CHECK(job.state.phase == Phase::kFinished);
}

TEST_CASE("a spare or a finished node that is signaled does not affect the group", "[coordinator]") {
    Job job({.min_nodes = 2, .max_nodes = 2});
    job.start({"n1", "n2"});
    job.join("n3");
    job.leave("n3");
    CHECK(job.receivers<Finished>() == Hosts{"n3"});
    CHECK(job.receivers<Abort>().empty());
    job.succeeded("n1");
    job.leave("n1");
    CHECK(job.receivers<Finished>() == Hosts{"n1"});
    CHECK(job.receivers<Abort>().empty());
    job.succeeded("n2");
    CHECK(job.verdict().outcome == Outcome::kSucceeded);
}

TEST_CASE("a spare that left is not the reason why a job with a lost node waits", "[coordinator]") {
    Job job({.min_nodes = 2, .max_nodes = 2, .max_restarts = 1});
    job.start({"n1", "n2"});
    job.join("n3");
    job.leave("n3");
    job.disconnect("n2");
    job.pass(1s);
    job.stopped("n1");
    CHECK(job.state.phase == Phase::kGathering);
    CHECK_FALSE(job.ends_job);
}

TEST_CASE("a leaving node that caused a failure is the culprit, not the worker", "[coordinator]") {
    Job job({.min_nodes = 2, .max_nodes = 3});
    job.start({"n1", "n2", "n3"});
    SECTION("elsewhere, and reported before the Leave arrives") {
        job.fail("n1", failure(0, "n1", {ExitStatus::Kind::kExited, 1, false}));
        job.pass(500ms);
        job.leave("n3");
    }
    SECTION("by the same signal, which the scheduler sent to the worker too") {
        job.fail("n3", failure(2, "n3", {ExitStatus::Kind::kSignaled, SIGTERM, false}));
        job.leave("n3");
    }
    for (const char* host : {"n3", "n2", "n1"}) job.stopped(host);
    CHECK(job.opens(2));
    CHECK(restarts_spent(job.state) == 0);
}

TEST_CASE("a failure stays the cause when a node is signaled", "[coordinator]") {
    Job job({.min_nodes = 2, .max_nodes = 3});
    job.start({"n1", "n2", "n3"});
    SECTION("much later") {
        job.fail("n1", failure(0, "n1"));
        job.pass(1100ms);
        job.leave("n3");
    }
    SECTION("and whose own worker it was") {
        job.fail("n3", failure(2, "n3"));
        job.leave("n3");
    }
    for (const char* host : {"n3", "n2", "n1"}) job.stopped(host);
    CHECK(job.verdict().outcome == Outcome::kWorkerFailed);
}

TEST_CASE("a node that is signaled while the others restart is released and they go on", "[coordinator]") {
    Job job({.min_nodes = 2, .max_nodes = 3, .max_restarts = 1});
    job.start({"n1", "n2", "n3"});
    job.fail("n1", failure(0, "n1"));
    job.pass(1100ms);
    job.leave("n3");
    job.stopped("n3");
    CHECK(job.actions.empty());
    job.stopped("n2");
    job.stopped("n1");
    CHECK(job.receivers<Finished>() == Hosts{"n3"});
    CHECK(job.sent<Finished>().at("n3").verdict.exit_code == 143);
    CHECK(job.asked<Disconnect>() == std::vector{Disconnect{"n3"}});
    CHECK(job.opens(2));
    CHECK(restarts_spent(job.state) == 1);
}

TEST_CASE("a failure with restarts left does not restart a job that every node was signaled to end", "[coordinator]") {
    Job job({.max_restarts = 3});
    job.start({"n1", "n2"});
    job.fail("n1",
             failure(0, "n1", {ExitStatus::Kind::kSignaled, SIGTERM, false}));  // the scheduler signals workers too
    job.leave("n1");
    job.leave("n2");
    job.stopped("n1");
    job.stopped("n2");
    CHECK(job.verdict().outcome == Outcome::kStopped);
    CHECK(job.verdict().exit_code == 143);
}

TEST_CASE("a failure spends no restart if the departure of a node ends the job before that", "[coordinator]") {
    Job job({.max_restarts = 3});
    job.start({"n1", "n2"});
    job.fail("n1", failure(0, "n1"));
    job.pass(1100ms);  // the departure does not explain it
    job.leave("n2");
    job.stopped("n2");
    job.stopped("n1");
    CHECK(job.verdict().outcome == Outcome::kStopped);
    CHECK(job.verdict().restarts == 0);
    CHECK_THAT(job.reason, !Contains("restart 1 of 3"));
}

TEST_CASE("a leaving node that disappears delays the others no longer than its grace", "[coordinator]") {
    Job job({.min_nodes = 1, .max_nodes = 2});
    job.start({"n1", "n2"});
    job.leave("n1");
    job.disconnect("n1");
    job.stopped("n2");
    CHECK(job.asked<OpenStore>().empty());
    job.pass(1s);
    CHECK(job.opens(2));
}

TEST_CASE("a leaving node that lost its connection is released when it reconnects", "[coordinator]") {
    Job job({.min_nodes = 1, .max_nodes = 2, .max_restarts = 1});
    job.start({"n1", "n2"});
    job.fail("n2", failure(1, "n2"));
    job.pass(1100ms);
    job.leave("n1");
    job.stopped("n1");
    job.disconnect("n1");
    job.stopped("n2");
    job.store_opens();
    REQUIRE(job.state.phase == Phase::kRunning);
    job.join("n1");
    CHECK(job.receivers<Finished>() == Hosts{"n1"});
    CHECK(job.receivers<Abort>().empty());
    CHECK_FALSE(job.state.nodes.contains("n1"));
}

TEST_CASE("the culprit's verdict reaches a node that was signaled meanwhile", "[coordinator]") {
    Job job;
    job.start({"n1", "n2"});
    job.fail("n1", failure(0, "n1"));
    job.pass(1100ms);
    job.leave("n2");
    job.stopped("n2");
    CHECK(job.actions.empty());
    job.stopped("n1");
    CHECK(job.verdict().outcome == Outcome::kWorkerFailed);
    CHECK(job.receivers<Finished>() == Hosts{"n1", "n2"});
}

TEST_CASE("a failure that a signal to another node follows is in the verdict", "[coordinator]") {
    Job job;
    job.start({"n1", "n2"});
    const int code = GENERATE(1, -1);  // -1: by the signal, which a scheduler sent to every process
    const ExitStatus status = code > 0 ? ExitStatus{ExitStatus::Kind::kExited, code, false}
                                       : ExitStatus{ExitStatus::Kind::kSignaled, SIGTERM, false};
    job.fail("n1", failure(0, "n1", status));
    CHECK(job.sent<Abort>().at("n2").failed == (code > 0));
    job.leave("n2");
    CHECK_FALSE(job.sent<Abort>().at("n1").failed);
    job.stopped("n1");
    job.stopped("n2");
    CHECK(job.verdict().outcome == Outcome::kStopped);
    CHECK(job.verdict().reason ==
          "node n2 was interrupted by SIGTERM, which ends the job (--nnodes 2)" +
              std::string(code > 0 ? "; before the signal: rank 0 on n1 exited with code 1" : ""));
}
