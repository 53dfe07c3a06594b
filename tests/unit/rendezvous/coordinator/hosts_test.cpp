// Hosts that end groups, stops that take too long, and the orders of an operator.
#include <fmt/format.h>

#include "common/exit_codes.hpp"
#include "rendezvous/coordinator/hosts.hpp"
#include "tests/catch.hpp"
#include "tests/unit/rendezvous/coordinator/job.hpp"

using namespace ddprun;
using namespace ddprun::protocol;
using namespace ddprun::coordinator;
using Catch::Contains;

namespace {

/// A worker of `host` fails, and the next group starts.
void fail_and_restart(Job& job, const std::string& host) {
    job.fail(host, failure(job.state.group.members.at(host).assignment.rank_base, host));
    job.restart();
    REQUIRE(job.state.phase == Phase::kRunning);
}

}  // namespace

// ---- strikes and cool-down

TEST_CASE("a host that fails twice is left out for a time that doubles", "[coordinator]") {
    Job job({.min_nodes = 2, .max_nodes = 3, .max_restarts = 9});
    job.start({"n1", "n2", "n3"});
    fail_and_restart(job, "n2");
    CHECK(job.receivers<Assignment>() == Hosts{"n1", "n2", "n3"});  // it may have been an accident
    fail_and_restart(job, "n2");
    CHECK(job.receivers<Assignment>() == Hosts{"n1", "n3"});
    job.pass(5s);
    CHECK_THAT(job.sent<Waiting>().at("n2").reason, Contains("has ended 2 worker groups and is left out for 10 s"));
    CHECK(job.state.phase == Phase::kRunning);
    job.pass(5s);
    CHECK(job.sent<Abort>().at("n1").reason == "node n2 joined");
    job.all_stop();
    job.store_opens();
    CHECK(job.receivers<Assignment>() == Hosts{"n1", "n2", "n3"});
    fail_and_restart(job, "n2");
    CHECK(cool_down_end(job.state, job.state.nodes.at("n2")) - job.now >= 19s);
}

TEST_CASE("a host that cools down is used if the job cannot do without it", "[coordinator]") {
    Job job({.min_nodes = 2, .max_nodes = 2, .max_restarts = 9});
    job.start({"n1", "n2"});
    for (int i = 0; i < 4; ++i) {
        fail_and_restart(job, "n2");
        CHECK(job.receivers<Assignment>() == Hosts{"n1", "n2"});
    }
    SECTION("but a spare is preferred") {
        job.join("n3");
        fail_and_restart(job, "n2");
        CHECK(job.receivers<Assignment>() == Hosts{"n1", "n3"});
    }
}

TEST_CASE("a cool-down is five minutes at most, and strikes are forgotten after an hour", "[coordinator]") {
    Job job({.min_nodes = 1, .max_nodes = 1, .max_restarts = 99});
    job.start({"n1"});
    for (int i = 0; i < 20; ++i) fail_and_restart(job, "n1");
    const Node& node = job.state.nodes.at("n1");
    CHECK(cool_down_end(job.state, node) - job.now > 280s);
    CHECK(cool_down_end(job.state, node) - job.now <= 300s);
    job.pass(61min);
    fail_and_restart(job, "n1");
    CHECK_FALSE(is_cooling_down(job.state, job.state.nodes.at("n1")));
}

// ---- the breaker

TEST_CASE("a needed node that is lost soon after each start ends the job", "[coordinator]") {
    Job job({.min_nodes = 2, .max_nodes = 2, .max_restarts = 3});
    job.start({"n1", "n2"});
    for (int i = 0; i < 2; ++i) {
        job.pass(2s);
        job.lose(i == 0 ? "n2" : "n2, once more");
        job.join_as(i == 0 ? "n2, once more" : "n2, at last", "n2");
        job.restart();
        REQUIRE(job.state.phase == Phase::kRunning);
    }
    job.pass(2s);
    job.disconnect("n2, at last");
    job.pass(1s);
    job.all_stop();
    CHECK(job.verdict().exit_code == exit_code::kDoNotRequeue);
    CHECK(job.verdict().outcome == Outcome::kInfrastructure);
    CHECK(job.verdict().reason ==
          "node n2 was lost: connection closed; node n2 has been lost 3 times within 60 s of a start, and the job "
          "cannot do without it (--nnodes 2)");
    CHECK_THAT(job.verdict().hint, Contains("ends the ddprun of n2"));
    CHECK(job.state.groups_started == 3);
}

TEST_CASE("a node that is lost soon after each start is set aside if the others are enough", "[coordinator]") {
    Job job({.min_nodes = 2, .max_nodes = 3});
    job.start({"n1", "n2", "n3"});
    NodeId id = "n2";
    int losses = 0;
    for (const TimePoint end = job.now + 13min; job.now < end; job.pass(100ms)) {
        if (job.state.phase != Phase::kRunning) job.restart();
        if (!job.state.group.members.contains(id) || job.now - job.state.group.started_at < 2s) continue;
        job.lose(id);  // 2 s after each start, and it is started again
        id = fmt::format("n2, after {}", ++losses);
        job.join_as(id, "n2");
    }
    CHECK_FALSE(job.state.verdict);
    CHECK(job.state.group.members.contains("n1"));
    CHECK(losses == 3);
    CHECK(job.state.groups_started == 6);  // 401 without these rules
    CHECK_FALSE(job.state.hosts.at("n2").set_aside.empty());
}

TEST_CASE("three losses without progress between them set a node aside until an operator takes it back",
          "[coordinator]") {
    Job job({.min_nodes = 1, .max_nodes = 3});
    job.start({"n1", "n2", "n3"});
    job.state.hosts["n2"].early_losses = 2;
    job.lose("n2");
    CHECK(job.state.hosts.at("n2").set_aside == "it was lost 3 times within 60 s of a start");
    job.join_as("n2 again", "n2");
    CHECK_THAT(job.sent<Waiting>().at("n2 again").reason,
               Contains("this node takes no part: it was lost 3 times") && Contains("ddpctl undrain n2"));
    job.pass(2min);
    CHECK(job.state.phase == Phase::kRunning);
    job.feed(Ordered{{.command = Order::Command::kUndrain, .node = "n2"}});
    CHECK(job.sent<Abort>().at("n1").reason == "node n2 joined");
}

// ---- the deadline of a stop

TEST_CASE("an agent that does not report the end of its workers is lost after its grace and 10 s", "[coordinator]") {
    Job job({.min_nodes = 2, .max_nodes = 3, .max_restarts = 1});
    job.start({"n1", "n2", "n3"});
    job.fail("n1", failure(0, "n1"));
    job.stopped("n1");
    job.stopped("n2");
    job.pass(39'900ms);
    CHECK(job.asked<Disconnect>().empty());
    job.pass(200ms);
    CHECK(job.asked<Disconnect>() == std::vector{Disconnect{"n3"}});  // now it freezes them
    CHECK(job.state.phase == Phase::kStopping);
    SECTION("it may end them at last") {
        job.join("n3");
        CHECK(job.sent<Welcome>().at("n3").lost);
        job.stopped("n3");
        job.restart();
        CHECK(job.receivers<Assignment>() == Hosts{"n1", "n2", "n3"});
    }
    SECTION("the others go on, also if it connects again at once") {
        job.join("n3");
        CHECK(job.sent<Welcome>().at("n3").lost);
        CHECK(job.receivers<Abort>() == Hosts{"n3"});
        job.pass(1s);
        CHECK(job.asked<Disconnect>() == std::vector{Disconnect{"n3"}});
        REQUIRE(job.state.phase == Phase::kOpening);
        job.store_opens();
        CHECK(job.receivers<Assignment>() == Hosts{"n1", "n2"});
        job.join("n3");
        CHECK(job.sent<Welcome>().at("n3").lost);
        job.pass(10min);
        CHECK(job.state.phase == Phase::kRunning);
        job.say("n3", GroupStopped{Generation{1}});  // now it may take part
        CHECK(job.sent<Abort>().at("n1").reason == "node n3 joined");
    }
    SECTION("the others go on within 11 s of its grace if it does not come back") {
        job.pass(900ms);
        CHECK(job.state.phase == Phase::kOpening);
    }
}

// ---- drain

TEST_CASE("a drained node's workers stop, and the job goes on without it until it is taken back", "[coordinator]") {
    Job job({.min_nodes = 2, .max_nodes = 3});
    job.start({"n1", "n2", "n3"});
    job.feed(Ordered{{.command = Order::Command::kDrain, .node = "n2"}});
    CHECK_FALSE(job.asked<Reply>().at(0).answer.refused);
    CHECK_THAT(job.asked<Reply>().at(0).answer.text, Contains("node n2 is drained"));
    CHECK(job.sent<Abort>().at("n1").reason == "node n2 was drained by ddpctl");
    job.all_stop();
    job.store_opens();
    CHECK(job.receivers<Assignment>() == Hosts{"n1", "n3"});
    job.pass(6s);
    CHECK_THAT(job.sent<Waiting>().at("n2").reason, Contains("this node takes no part: an operator has drained"));
    job.feed(Ordered{{.command = Order::Command::kUndrain, .node = "n2"}});
    CHECK_FALSE(job.asked<Reply>().at(0).answer.refused);
    CHECK(job.sent<Abort>().at("n1").reason == "node n2 joined");
}

TEST_CASE("an order that cannot be followed is refused with its reason and changes nothing", "[coordinator]") {
    Job job({.min_nodes = 2, .max_nodes = 3});
    job.start({"n1", "n2", "n3"});
    Order order{.command = Order::Command::kDrain, .node = "n2"};
    std::string says;
    SECTION("unknown node") {
        order.node = "n9";
        says = "this job has no node 'n9'. Its nodes: n1, n2, n3";
    }
    SECTION("needed") {
        job.lose("n3");
        says = "the job cannot do without node n2: it needs 2 nodes, and 1 other is here";
    }
    SECTION("not drained") {
        order.command = Order::Command::kUndrain;
        says = "node n2 is not drained";
    }
    SECTION("about to end") {
        job.succeeded("n1");
        says = "workers have finished already";
    }
    SECTION("over") {
        job.succeeded("n1");
        job.succeeded("n2");
        job.succeeded("n3");
        says = "the job is over";
    }
    job.feed(Ordered{order});
    CHECK(job.actions.size() == 1);
    CHECK(job.asked<Reply>().at(0).answer.refused);
    CHECK_THAT(job.asked<Reply>().at(0).answer.text, Contains(says));
}
