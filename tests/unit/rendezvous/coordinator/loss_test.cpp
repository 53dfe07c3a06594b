// Lost nodes: when a node counts as lost, and what follows for the others.
#include "common/exit_codes.hpp"
#include "tests/catch.hpp"
#include "tests/unit/rendezvous/coordinator/job.hpp"

using namespace ddprun;
using namespace ddprun::protocol;
using namespace ddprun::coordinator;
using Catch::Contains;

namespace {

/// Returns the reason that the only survivor of two nodes gets.
const std::string kWaitsForAnother =
    "1 of 2 nodes are here, missing: n2 (node n2 was lost: connection closed); waiting 600 s for another node in its "
    "place, which "
    "--rdzv-conf join_timeout=SECONDS changes: start ddprun there with the same options";

}  // namespace

TEST_CASE("a closed connection is a lost node after the grace, survivors go on without spending a restart",
          "[coordinator]") {
    Job job = three();
    job.disconnect("n2");
    CHECK(job.actions.empty());
    job.pass(900ms);
    CHECK(job.receivers<Abort>().empty());
    job.pass(100ms);
    CHECK(job.receivers<Abort>() == Hosts{"n1", "n3"});
    CHECK(job.sent<Abort>().at("n1").reason == "node n2 was lost: connection closed");
    CHECK(job.sent<Abort>().at("n1").failing_for == 1s);
    job.stopped("n3");
    CHECK(job.asked<OpenStore>().empty());
    job.stopped("n1");
    CHECK(job.opens(2));
    job.store_opens(4002);
    const std::string why = "node n2 was lost: connection closed";
    CHECK(job.sent<Assignment>().at("n1") ==
          Assignment{Generation{2}, NodeRank{0}, 2, 0, 4, "", 4002, 1, 0, why, {}, {{0, 4}}});
    CHECK(job.sent<Assignment>().at("n3") ==
          Assignment{Generation{2}, NodeRank{1}, 2, 2, 4, "", 4002, 1, 0, why, {}, {{2, 4}}});
    job.succeeded("n1");
    job.succeeded("n3");
    CHECK(job.verdict().exit_code == 0);
}

TEST_CASE("the loss of a silent node began with its silence", "[coordinator]") {
    Job job = three();
    job.silent = {"n3"};
    job.pass(3100ms);
    REQUIRE(job.receivers<Abort>() == Hosts{"n1", "n2"});
    CHECK(job.sent<Abort>().at("n1").failing_for >= 2900ms);
}

TEST_CASE("of several losses the first counts as the beginning", "[coordinator]") {
    Job job = three();
    job.disconnect("n2");
    job.pass(500ms);
    job.disconnect("n3");
    job.pass(600ms);
    CHECK(job.sent<Abort>().at("n1").failing_for == 1s);  // of n2
    job.pass(500ms);
    job.disconnect("n1");
    job.join(job.greeting("n1"));
    CHECK(job.sent<Abort>().at("n1").reason == "nodes n2 and n3 were lost: connection closed");
    CHECK(job.sent<Abort>().at("n1").failing_for == 1600ms);
}

TEST_CASE("silence is a lost node after three seconds, and its connection is closed", "[coordinator]") {
    Job job = three();
    job.pass(500ms);
    job.silent = {"n3"};
    job.pass(2900ms);
    CHECK(job.receivers<Abort>().empty());
    job.pass(100ms);
    CHECK(job.receivers<Abort>() == Hosts{"n1", "n2"});
    CHECK(job.sent<Abort>().at("n1").reason == "node n3 was lost: no message for 3 s");
    CHECK(job.asked<Disconnect>() == std::vector{Disconnect{"n3"}});
}

TEST_CASE("a daemon that was stopped itself does not count its nodes as lost", "[coordinator]") {
    Job job = three();
    job.pass(1s);
    job.now += 60s;
    job.feed(Tick{});
    job.pass(2s);
    CHECK(job.receivers<Abort>().empty());
    CHECK(job.state.phase == Phase::kRunning);
    job.silent = {"n1", "n2", "n3"};
    job.pass(30100ms);
    CHECK(job.verdict().outcome == Outcome::kInfrastructure);  // but silence afterwards counts again
}

TEST_CASE("with fewer than MIN survivors and no restart left the job ends as soon as they have stopped",
          "[coordinator]") {
    const int max_restarts = GENERATE(0, 1);
    CAPTURE(max_restarts);
    Job job({.max_restarts = max_restarts});
    job.start({"n1", "n2"});
    if (max_restarts == 1) {
        job.fail("n2", failure(1, "n2"));
        job.stopped("n1");
        job.stopped("n2");
        job.store_opens();
    }
    SECTION("lost while the workers ran") {
        job.disconnect("n2");
        job.pass(1s);
        CHECK_FALSE(job.ends_job);
        job.stopped("n1");
    }
    SECTION("lost when they had stopped by themselves") {
        job.stopped("n2");
        job.stopped("n1");
        CHECK_FALSE(job.ends_job);
        job.disconnect("n2");
        job.store_opens();
        CHECK_FALSE(job.ends_job);  // it may reconnect in a moment
        job.pass(1s);
    }
    CHECK(job.verdict().outcome == Outcome::kInfrastructure);
    CHECK(job.verdict().exit_code == exit_code::kInfrastructure);
    CHECK_THAT(
        job.verdict().reason,
        Contains("node n2 was lost: connection closed; the job needs 2 nodes and only 1 is left (n1), and") &&
            Contains(max_restarts == 0 ? "--max-restarts 1 they would wait" : "no restart is left (--max-restarts 1)"));
    CHECK_THAT(job.verdict().hint, Catch::StartsWith("Look for what ended the node or cut it off ("));
}

TEST_CASE("without a restart left a spare still takes the place of a lost node", "[coordinator]") {
    Job job;
    job.start({"n1", "n2"});
    job.disconnect("n2");
    job.pass(1s);
    job.join("n3");
    job.stopped("n1");
    CHECK(job.opens(2));
    job.store_opens();
    CHECK(job.sent<Assignment>().at("n3").reason == "node n2 was lost: connection closed; n3 takes the place of n2");
}

TEST_CASE("workers that had failed because of a lost node are restarted because of that node", "[coordinator]") {
    Job job({.max_nodes = 3});
    job.start({"n1", "n2", "n3"});
    CHECK(job.sent<Assignment>().at("n1").reason.empty());
    job.disconnect("n2");
    job.fail("n1", failure(0, "n1"));
    job.stopped("n1");
    job.stopped("n3");
    job.pass(1s);
    job.store_opens();
    CHECK(job.sent<Assignment>().at("n1").reason == "node n2 was lost: connection closed");
}

TEST_CASE(
    "with fewer than MIN survivors and a restart left the job gathers again, says why, for how long and how to "
    "change that",
    "[coordinator]") {
    Job job({.max_restarts = 1});
    job.start({"n1", "n2"});
    job.disconnect("n2");
    job.pass(1s);
    job.stopped("n1");
    CHECK(job.state.phase == Phase::kGathering);
    job.pass(1s);
    CHECK(job.sent<Waiting>().at("n1").reason == kWaitsForAnother);
    SECTION("a new node completes it at once") {
        job.pass(100s);
        job.join("n5");
        CHECK(job.opens(2));
        job.store_opens();
        CHECK(job.sent<Assignment>().at("n1").node_rank == NodeRank{0});
        CHECK(restarts_spent(job.state) == 0);
    }
    SECTION("no node joins") {
        job.pass(599s);
        CHECK(job.verdict().outcome == Outcome::kInfrastructure);
        CHECK_THAT(job.verdict().reason, Contains("n1") && Contains("1 is missing") && Contains("node n2 was lost"));
    }
    SECTION("the survivor is signaled") {
        job.leave("n1");
        CHECK(job.verdict().outcome == Outcome::kStopped);
        CHECK(job.verdict().exit_code == 143);
    }
}

TEST_CASE("a node that stops its workers and then disappears is the reason why the others wait", "[coordinator]") {
    Job job({.max_restarts = 1});
    job.start({"n1", "n2"});
    job.stopped("n2");
    job.disconnect("n2");
    job.stopped("n1");
    job.pass(2s);
    CHECK(job.sent<Waiting>().at("n1").reason == kWaitsForAnother);
}

TEST_CASE("a spare steps in for a lost member without a last call", "[coordinator]") {
    Job job({.min_nodes = 2, .max_nodes = 2});
    job.start({"n1", "n2"});
    job.join("n3");
    job.disconnect("n1");
    job.pass(1s);
    CHECK(job.receivers<Abort>() == Hosts{"n2"});
    job.stopped("n2");
    CHECK(job.opens(2));
    job.store_opens();
    CHECK(job.sent<Assignment>().at("n2").node_rank == NodeRank{1});
    CHECK(job.sent<Assignment>().at("n3").node_rank == NodeRank{0});
}

TEST_CASE("members of the last group are preferred over spares, whatever rank those request", "[coordinator]") {
    Job job({.min_nodes = 2, .max_nodes = 2, .max_restarts = 1});
    job.start({"n8", "n9"});
    Join eager = job.greeting("n1");
    eager.node_rank = 0;
    job.join(eager);
    job.fail("n8", failure(0, "n8"));
    job.stopped("n8");
    job.stopped("n9");
    job.store_opens();
    CHECK(job.receivers<Assignment>() == Hosts{"n8", "n9"});
}

TEST_CASE("the loss of a spare or of a finished node does not affect the group", "[coordinator]") {
    Job job({.min_nodes = 2, .max_nodes = 2});
    job.start({"n1", "n2"});
    job.join("n3");
    job.disconnect("n3");
    job.pass(2s);
    CHECK(job.receivers<Abort>().empty());
    job.succeeded("n1");
    job.disconnect("n1");
    job.pass(2s);
    CHECK(job.receivers<Abort>().empty());
    job.succeeded("n2");
    CHECK(job.verdict().exit_code == 0);
}

TEST_CASE("a lost node that caused a failure elsewhere is the culprit, not the worker", "[coordinator]") {
    Job job = three(0);
    SECTION("the dead node's connection ends first") {
        job.disconnect("n2");
        job.fail("n1", failure(0, "n1"));
    }
    SECTION("the failure is reported first") {
        job.fail("n1", failure(0, "n1"));
        job.pass(500ms);
        job.disconnect("n2");
    }
    SECTION("the daemon was stopped before it could tell") {
        job.silent = {"n2"};
        job.fail("n1", failure(0, "n1"));
        job.now += 60s;
        job.feed(Tick{});
        job.pass(2100ms);
    }
    SECTION("the dead node falls silent") {
        job.silent = {"n2"};
        job.pass(500ms);
        job.fail("n1", failure(0, "n1"));
        job.pass(2400ms);
    }
    job.stopped("n1");
    job.stopped("n3");
    CHECK_FALSE(job.ends_job);  // the verdict waits for n2
    job.pass(1s);
    CHECK_THAT(job.state.cause.reason, Contains("node n2 was lost"));
    CHECK(restarts_spent(job.state) == 0);
    CHECK(job.opens(2));
}

TEST_CASE("a failure stays the cause when", "[coordinator]") {
    Job job = three(0);
    SECTION("the disconnected node comes back") {
        job.disconnect("n2");
        job.fail("n1", failure(0, "n1"));
        job.join("n2");
    }
    SECTION("the lost node is the failing one") {
        job.fail("n1", failure(0, "n1"));
        job.disconnect("n1");
        job.pass(1s);
        job.stopped("n2");
    }
    SECTION("the other node is lost long after it") {
        job.fail("n1", failure(0, "n1"));
        job.pass(1500ms);
        job.disconnect("n2");
        job.pass(1s);
    }
    for (const char* host : {"n1", "n2", "n3"}) {
        if (job.state.nodes.at(host).link == Link::kConnected) job.stopped(host);
    }
    CHECK(job.verdict().outcome == Outcome::kWorkerFailed);
    CHECK(job.verdict().culprit == failure(0, "n1"));
}

TEST_CASE("when every node is lost the job ends", "[coordinator]") {
    Job job = three();
    for (const char* host : {"n1", "n2", "n3"}) job.disconnect(host);
    job.pass(1s);
    CHECK(job.closes(1));
    CHECK(job.verdict().outcome == Outcome::kInfrastructure);
    CHECK(job.verdict().exit_code == exit_code::kInfrastructure);
    CHECK_THAT(job.verdict().reason,
               Contains("no node is left") && Contains("nodes n1, n2 and n3 were lost: connection closed"));
}

TEST_CASE("a daemon whose own host was cut off waits for its nodes if they may be restarted", "[coordinator]") {
    const int max_restarts = GENERATE(0, 1);
    Job job({.min_nodes = 2, .max_nodes = 2, .max_restarts = max_restarts});
    job.start({"n1", "n2"});
    job.silent = {"n1", "n2"};
    const auto hold = job.state.config.hold;
    job.pass(hold);
    CHECK(job.closes(1));
    if (max_restarts == 0) {
        CHECK_THAT(job.verdict().reason, Contains("no node is left: nodes n1 and n2 were lost: no message for 30 s"));
        return;
    }
    CHECK_FALSE(job.ends_job);
    SECTION("they come back") {
        job.pass(hold);
        job.silent.clear();
        job.join("n2");
        job.stopped("n2");
        job.pass(1s);
        CHECK_THAT(job.state.explanation.message.reason, Contains("1 of 2 nodes are here, missing: n1"));
        job.join("n1");
        job.stopped("n1");
        CHECK(job.opens(2));
    }
    SECTION("they give up at three times hold, and the daemon with them") {
        job.pass(2 * hold - kTickInterval);
        CHECK_FALSE(job.ends_job);
        job.pass(kTickInterval);
        CHECK_THAT(job.verdict().reason, Contains("no node is left"));
        CHECK(job.asked<EndDaemon>().size() == 1);
    }
}

TEST_CASE("a daemon that was cut off before the first group waits for its nodes, whatever --max-restarts is",
          "[coordinator]") {
    Job job({.min_nodes = 3, .max_nodes = 3, .max_restarts = GENERATE(0, 1)});
    job.join("n1");
    job.join("n2");
    job.silent = {"n1", "n2"};
    const auto hold = job.state.config.hold;
    job.pass(hold);
    CHECK(job.asked<Disconnect>().size() == 2);
    CHECK_FALSE(job.ends_job);
    SECTION("they come back") {
        job.pass(hold);
        job.silent.clear();
        for (const char* host : {"n2", "n1", "n3"}) {
            Join again = job.greeting(host);
            if (job.state.nodes.contains(host)) again.session = job.state.config.session;
            job.join(again);
            CHECK_FALSE(job.sent<Welcome>().at(host).lost);
        }
        CHECK(job.state.nodes.at("n2").idle_since == job.now);
        CHECK(job.opens(1));
    }
    SECTION("they give up at three times hold, and the daemon with them") {
        job.pass(2 * hold - kTickInterval);
        CHECK_FALSE(job.ends_job);
        job.pass(kTickInterval);
        CHECK_THAT(job.verdict().reason, Contains("no node is left"));
    }
    SECTION("another one joins, and the lost ones are forgotten at the next start") {
        job.silent.clear();
        for (const char* host : {"n3", "n4", "n5"}) job.join(host);
        job.store_opens();
        CHECK(job.state.nodes.size() == 3);
    }
}

TEST_CASE("after a cut of the daemon's host the next group waits for the nodes that look for the daemon",
          "[coordinator]") {
    Job job({.min_nodes = 1, .max_nodes = 3, .max_restarts = 1});
    job.start({"n1", "n2", "n3"});
    job.silent = {"n1", "n2", "n3"};
    const auto hold = job.state.config.hold;
    const bool late = GENERATE(false, true);
    job.pass(late ? 2 * hold + 20s : 2 * hold);
    job.silent.clear();
    job.join("n2");
    job.stopped("n2");
    CHECK(job.asked<OpenStore>().empty());
    job.pass(9s);
    CHECK(job.asked<OpenStore>().empty());
    SECTION("they come back") {
        job.join("n1");
        job.stopped("n1");
        CHECK(job.asked<OpenStore>().empty());
        job.join("n3");
        job.stopped("n3");
        CHECK(job.opens(2));
    }
    SECTION("they do not, and the last call is over, or they have given up") {
        job.pass(late ? 1s : job.state.config.last_call - 9s);
        CHECK(job.opens(2));
    }
}

TEST_CASE("a daemon that has lost all its nodes names those that may come back, and until when", "[coordinator]") {
    Job job({.max_restarts = 1});
    job.start({"n1", "n2"});
    job.silent = {"n1", "n2"};
    const auto hold = job.state.config.hold;
    job.pass(hold - kTickInterval);
    std::vector<std::string> lines;
    const TimePoint lost_at = job.now + kTickInterval;
    while (job.now < lost_at + 2 * hold - kTickInterval) {
        job.pass(kTickInterval);
        if (job.reason.find("may come back") != std::string::npos) lines.push_back(job.reason);
    }
    REQUIRE(lines.size() == 2);
    CHECK_THAT(lines[0], Catch::EndsWith("; no node is connected, perhaps because the network has cut this host off; "
                                         "n1, n2 may come back within 60 s"));
    CHECK(lines[1] ==
          "no node is connected, perhaps because the network has cut this host off; n1, n2 may come "
          "back within 30 s");
}

TEST_CASE("a departure before a cut of the daemon's host ends the job only if too few nodes can come back",
          "[coordinator]") {
    const int max_nodes = GENERATE(3, 4);
    Job job({.min_nodes = max_nodes - 1, .max_nodes = max_nodes, .max_restarts = 1});
    job.start(max_nodes == 3 ? Hosts{"n1", "n2", "n3"} : Hosts{"n1", "n2", "n3", "n4"});
    job.leave("n3");
    job.silent = {"n1", "n2", "n3", "n4"};
    if (max_nodes == 4) {
        job.disconnect("n4");  // its agent has died
        job.pass(2s);
    }
    job.pass(job.state.config.hold);
    if (max_nodes == 4) {
        CHECK(job.verdict().outcome == Outcome::kStopped);
        return;
    }
    CHECK_FALSE(job.ends_job);
    job.silent.clear();
    job.join("n1");
    job.stopped("n1");
    CHECK_FALSE(job.ends_job);
    job.join("n2");
    job.stopped("n2");
    job.pass(1s);
    CHECK_FALSE(job.ends_job);
    CHECK(job.opens(2));
}

TEST_CASE("of several nodes that are lost together all are named, to those that wait, too", "[coordinator]") {
    Job job({.min_nodes = 4, .max_nodes = 4, .max_restarts = 1});
    job.start({"n1", "n2", "n3", "n4"});
    job.disconnect("n2");
    job.disconnect("n4");
    job.pass(1s);
    job.stopped("n1");
    job.stopped("n3");
    job.pass(1s);
    CHECK_THAT(
        job.state.explanation.message.reason,
        Contains("2 of 4 nodes are here, missing: n2, n4 (nodes n2 and n4 were lost: connection closed); waiting"));
    job.join("n5");
    job.disconnect("n3");
    job.pass(1s);
    CHECK_THAT(job.state.explanation.message.reason, Contains("(nodes n2, n4 and n3 were lost: connection closed)"));
    job.silent = {"n1"};
    job.pass(4s);
    CHECK_THAT(job.state.explanation.message.reason, Contains("(nodes n2, n4, n3 and n1 were lost)"));
}

TEST_CASE("a heartbeat that the network has held back does not show that its node lived when it came",
          "[coordinator]") {
    Job job = three(1);
    job.state.config.heartbeat_interval = 500ms;
    job.pass(2s);
    job.fail("n1", failure(0, "n1"));  // because n3 is dead
    job.stopped("n1");
    job.stopped("n2");
    job.silent = {"n3"};
    job.pass(1500ms);
    const bool held_back = GENERATE(true, false);
    job.say("n3", Heartbeat{9, held_back ? 2 : job.state.heartbeats});
    job.pass(3s);
    CHECK(restarts_spent(job.state) == (held_back ? 0 : 1));
}

TEST_CASE("a leave that the network has held back explains a failure that was reported before it", "[coordinator]") {
    Job job = three(1);
    job.state.config.heartbeat_interval = 500ms;
    job.pass(2s);
    job.silent = {"n3"};
    job.fail("n1", failure(0, "n1"));
    job.pass(2500ms);
    job.leave("n3", SIGTERM);
    CHECK_THAT(job.state.cause.reason, Contains("node n3"));
    CHECK_FALSE(job.state.cause.failure.has_value());
}

TEST_CASE("a leave that is repeated after a reconnect explains a failure that was reported before it",
          "[coordinator]") {
    Job job = three(1);
    job.state.config.heartbeat_interval = 500ms;
    job.pass(2s);
    job.silent = {"n3"};
    job.fail("n1", failure(0, "n1"));
    job.pass(1s);
    job.feed(NodeDisconnected{"n3", true});
    job.pass(1s);
    Join again = job.greeting("n3");
    again.session = job.state.config.session;
    job.join(again);
    job.leave("n3", SIGTERM);
    CHECK_THAT(job.state.cause.reason, Contains("node n3"));
    CHECK_FALSE(job.state.cause.failure.has_value());
}

TEST_CASE("a node that the loss of another one has released is not lost as well", "[coordinator]") {
    Job job = three(1);
    job.fail("n1", failure(0, "n1"));
    job.pass(1500ms);
    job.leave("n3");
    job.stopped("n3");
    job.stopped("n1");
    job.silent = {"n2", "n3"};
    job.pass(3s);
    CHECK_FALSE(job.state.nodes.contains("n3"));
}
