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
using Catch::EndsWith;

namespace {

/// A worker of `host` fails, and the next group starts.
void fail_and_restart(Job& job, const std::string& host) {
    job.fail(host, failure(job.state.group.members.at(host).assignment.rank_base, host));
    job.restart();
    REQUIRE(job.state.phase == Phase::kRunning);
}

diagnosis::Diagnosis link_n1_n2() {
    return {.text = "LINK node n1 and node n2", .hint = "Check the network", .links = {{"n1", "n2"}}};
}

/// A worker of `host` fails because two nodes cannot reach each other, and the next group starts, if any does.
void cut_link(Job& job, const std::string& host, const diagnosis::Diagnosis& link = link_n1_n2()) {
    FailureReport report =
        failure(job.state.group.members.at(host).assignment.rank_base, host, {ExitStatus::Kind::kExited, 1, false});
    report.pid = 7;
    job.fail(host, report);
    job.feed(DiagnosisPending{job.state.generation});
    job.feed(Diagnosed{job.state.generation, link});
    job.restart();
}

}  // namespace

// ---- links between nodes

TEST_CASE("a cut link spends a restart, and one of its nodes is left out at once if the job can do without it",
          "[coordinator]") {
    Job job({.min_nodes = 2, .max_nodes = 3, .max_restarts = 1});
    job.start({"n1", "n2", "n3"});
    job.pass(5min);
    cut_link(job, "n3");  // which has lost both
    CHECK(job.receivers<Assignment>() == Hosts{"n1", "n3"});
    const Assignment assignment = job.sent<Assignment>().at("n3");
    CHECK(assignment.reason == "LINK node n1 and node n2");
    REQUIRE(assignment.restart.has_value());
    CHECK(assignment.restart->number == 1);
    CHECK(job.state.hosts["n3"].strikes == 0);
    job.pass(5s);
    CHECK_THAT(job.sent<Waiting>().at("n2").reason,
               Contains("this node could not reach another one, and is left out for an hour") &&
                   Contains("`ddpctl undrain n2` lets it take part at once"));
}

TEST_CASE("a node that is left out because of a cut link does not rejoin the job before its strike is forgotten",
          "[coordinator]") {
    Job job({.min_nodes = 2, .max_nodes = 3, .max_restarts = 3});
    job.start({"n1", "n2", "n3"});
    job.pass(5min);
    const int started_before = job.state.groups_started;
    cut_link(job, "n3");
    SECTION("while the link stays cut, one restart is spent") {
        for (const TimePoint end = job.now + 59min; job.now < end; job.pass(1s)) {
            REQUIRE(job.state.phase == Phase::kRunning);
            if (job.state.group.members.contains("n2")) cut_link(job, "n3");
        }
        CHECK(job.state.groups_started == started_before + 1);
        job.pass(1min);
        CHECK(job.state.cause.reason == "node n2 joined");
    }
    SECTION("unless an operator lets it") {
        job.pass(1min);
        CHECK(job.state.phase == Phase::kRunning);
        job.feed(Ordered{{.command = Order::Command::kUndrain, .node = "n2"}});
        job.pass(10s);
        CHECK(job.state.cause.reason == "node n2 joined");
    }
    SECTION("unless the job needs it") {
        job.lose("n1");
        CHECK(job.state.group.members.contains("n2"));
    }
}

TEST_CASE("a node that has lost one link after the other is left out instead of the nodes at their other ends",
          "[coordinator]") {
    Job job({.min_nodes = 2, .max_nodes = 5, .max_restarts = 9});
    job.start({"n1", "n2", "n3", "n4", "n5"});
    job.pass(5min);
    cut_link(job, "n3");
    REQUIRE(job.receivers<Assignment>() == Hosts{"n1", "n3", "n4", "n5"});
    const diagnosis::Diagnosis link{.text = "LINK node n1 and node n4", .links = {{"n1", "n4"}}};
    SECTION("n1") {
        job.pass(5min);
        cut_link(job, "n3", link);
        CHECK(job.receivers<Assignment>() == Hosts{"n3", "n4", "n5"});
    }
    SECTION("unless that was more than an hour ago") {
        while (job.state.phase == Phase::kRunning) job.pass(1s);
        REQUIRE(job.state.cause.reason == "node n2 joined");
        job.restart();
        job.pass(1min);
        REQUIRE(job.state.phase == Phase::kRunning);
        cut_link(job, "n3", link);
        CHECK(job.receivers<Assignment>() == Hosts{"n1", "n2", "n3", "n5"});
    }
}

TEST_CASE("a node that an operator lets take part again is left out again when its link is still cut",
          "[coordinator]") {
    Job job({.min_nodes = 2, .max_nodes = 3, .max_restarts = 9});
    job.start({"n1", "n2", "n3"});
    job.pass(5min);
    cut_link(job, "n3");
    REQUIRE(job.receivers<Assignment>() == Hosts{"n1", "n3"});
    job.feed(Ordered{{.command = Order::Command::kUndrain, .node = "n2"}});
    job.pass(10s);
    job.restart();
    REQUIRE(job.state.group.members.contains("n2"));
    job.pass(5min);
    cut_link(job, "n3");
    CHECK(job.receivers<Assignment>() == Hosts{"n1", "n3"});
}

TEST_CASE("strikes that are older than an hour do not choose the end of a cut link", "[coordinator]") {
    Job job({.min_nodes = 2, .max_nodes = 3, .max_restarts = 9});
    job.start({"n1", "n2", "n3"});
    fail_and_restart(job, "n1");
    job.pass(GENERATE(5min, 61min));
    const bool counts = job.now - job.state.hosts.at("n1").struck_at < 1h;
    cut_link(job, "n3");
    CHECK(job.receivers<Assignment>() == (counts ? Hosts{"n2", "n3"} : Hosts{"n1", "n3"}));
}

TEST_CASE("a node that is left out because of a cut link stays so when the job has needed it and it failed",
          "[coordinator]") {
    Job job({.min_nodes = 2, .max_nodes = 3, .max_restarts = 9});
    job.start({"n1", "n2", "n3"});
    job.pass(5min);
    cut_link(job, "n3");
    job.lose("n1");
    job.restart();
    REQUIRE(job.state.group.members.contains("n2"));
    fail_and_restart(job, "n2");
    CHECK(cool_down_end(job.state, job.state.nodes.at("n2")) - job.now > 50min);
    job.join_as("n1, once more", "n1");
    job.restart();
    fail_and_restart(job, "n3");
    CHECK_FALSE(job.state.group.members.contains("n2"));
    job.feed(Ordered{{.command = Order::Command::kUndrain, .node = "n2"}});
    CHECK_FALSE(is_cooling_down(job.state, job.state.nodes.at("n2")));
}

TEST_CASE("a cut link ends the job when no restart is left, however late it is noticed after a start",
          "[coordinator]") {
    Job job({.min_nodes = 3, .max_nodes = 3, .max_restarts = 2});
    job.start({"n1", "n2", "n3"});
    for (const char* host : {"n3", "n1"}) {
        job.pass(5min);
        cut_link(job, host);
        REQUIRE(job.state.phase == Phase::kRunning);
    }
    job.pass(5min);
    cut_link(job, "n3");
    REQUIRE(job.state.verdict);
    CHECK(job.state.verdict->exit_code == exit_code::kInfrastructure);
    CHECK(job.state.verdict->outcome == Outcome::kInfrastructure);
    CHECK(job.state.verdict->reason == "LINK node n1 and node n2; no restart left (--max-restarts 2)");
    CHECK(job.state.verdict->hint == "Check the network");
    CHECK(job.state.verdict->culprit->host == "n3");
    CHECK(job.state.verdict->first_victim);
}

TEST_CASE("without restarts a cut link ends the job as a failure of the infrastructure", "[coordinator]") {
    Job job({.min_nodes = 3, .max_nodes = 3});
    job.start({"n1", "n2", "n3"});
    cut_link(job, "n3");
    REQUIRE(job.state.verdict);
    CHECK(job.state.verdict->exit_code == exit_code::kInfrastructure);
    CHECK(job.state.verdict->reason == "LINK node n1 and node n2");
}

TEST_CASE("a cut link that was diagnosed before a failure does not explain it", "[coordinator]") {
    Job job({.min_nodes = 3, .max_nodes = 3});
    job.start({"n1", "n2", "n3"});
    job.feed(Diagnosed{job.state.generation, link_n1_n2()});
    job.pass(10s);
    job.fail("n3", failure(job.state.group.members.at("n3").assignment.rank_base, "n3",
                           {ExitStatus::Kind::kExited, 3, false}));
    job.restart();
    REQUIRE(job.state.verdict);
    CHECK(job.state.verdict->exit_code == 3);
    CHECK(job.state.verdict->diagnosis.empty());
}

// ---- strikes and cool-down

TEST_CASE("a host that fails twice is left out for a time that doubles", "[coordinator]") {
    Job job({.min_nodes = 2, .max_nodes = 3, .max_restarts = 9});
    job.start({"n1", "n2", "n3"});
    fail_and_restart(job, "n2");
    CHECK(job.receivers<Assignment>() == Hosts{"n1", "n2", "n3"});  // it may have been an accident
    fail_and_restart(job, "n2");
    CHECK(job.receivers<Assignment>() == Hosts{"n1", "n3"});
    job.pass(5s);
    CHECK_THAT(job.sent<Waiting>().at("n2").reason,
               Contains("this node has failed or was lost 2 times, and is left out for 10 s"));
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

TEST_CASE("a fault of the network that takes most nodes away at once counts against none of them", "[coordinator]") {
    Job job({.min_nodes = 2, .max_nodes = 4, .max_restarts = 1});
    job.start({"n1", "n2", "n3", "n4"});
    for (int i = 0; i < 4; ++i) {
        job.silent = {"n2", "n3", "n4"};
        job.pass(4s);
        job.stopped("n1");
        CHECK(job.state.phase == Phase::kGathering);
        job.silent.clear();
        for (const char* host : {"n2", "n3", "n4"}) {  // their workers have stopped meanwhile
            job.join(host);
            job.say(host, GroupStopped{job.state.group.generation});
            job.pass(200ms);
        }
        job.pass(1s);
        REQUIRE(job.state.phase == Phase::kOpening);
        job.store_opens();
        CHECK(job.state.group.members.size() == 4);
        job.pass(10s);
    }
    CHECK(job.state.groups_started == 5);
    CHECK(job.state.early_outages == 4);
    for (const auto& [name, host] : job.state.hosts) CHECK(host.strikes == 0);
}

TEST_CASE("a network that cuts off most nodes soon after each start ends the job in the end", "[coordinator]") {
    Job job({.min_nodes = 2, .max_nodes = 4, .max_restarts = 1});
    job.start({"n1", "n2", "n3", "n4"});
    while (job.state.groups_started < 20 && !job.state.verdict) {
        job.silent = {"n2", "n3", "n4"};
        job.pass(4s);
        job.stopped("n1");
        job.silent.clear();
        if (job.state.verdict) break;
        for (const char* host : {"n2", "n3", "n4"}) {
            job.join(host);
            job.say(host, GroupStopped{job.state.group.generation});
        }
        while (job.state.phase == Phase::kGathering) job.pass(1s);
        job.store_opens();
    }
    CHECK(job.state.groups_started == kMaxEarlyOutages);
    CHECK(job.verdict().exit_code == exit_code::kInfrastructure);
    CHECK_THAT(job.verdict().reason, Contains("cut off at once, as within 60 s of each of the newest 10 starts"));
}

TEST_CASE("agents that die together soon after each start are no outage of the network", "[coordinator]") {
    Job job({.min_nodes = 2, .max_nodes = 4, .max_restarts = 1});
    job.start({"n1", "n2", "n3", "n4"});
    for (int i = 1; i <= 3; ++i) {
        for (const char* host : {"n3", "n4"}) job.disconnect(i == 1 ? host : fmt::format("{}, {}", host, i));
        job.pass(1s);
        job.restart();
        for (const char* host : {"n3", "n4"}) job.join_as(fmt::format("{}, {}", host, i + 1), host);
        job.pass(job.state.phase == Phase::kRunning ? 30s : 2s);
        job.restart();
        if (job.state.verdict) break;
    }
    CHECK(job.state.early_outages == 0);
    CHECK(job.state.hosts.at("n3").strikes >= 2);
    CHECK(job.state.hosts.at("n4").strikes >= 2);
}

TEST_CASE("a drained host is known by its ddprun that is started again at once", "[coordinator]") {
    Job job({.min_nodes = 1, .max_nodes = 3});
    job.start({"n1", "n2"});
    job.join_as("second on n2", "n2");
    REQUIRE(job.state.nodes.at("second on n2").join.host == "n2#2");
    job.feed(Ordered{{.command = Order::Command::kDrain, .node = "n2"}});
    job.all_stop();
    job.store_opens();
    job.disconnect("n2");
    job.join_as("n2, started again", "n2");  // within the grace of the closed connection
    const Node& node = job.state.nodes.at("n2, started again");
    CHECK(node.join.host == "n2");
    CHECK(node.set_aside);
    CHECK_FALSE(job.state.nodes.contains("n2"));
}

TEST_CASE("a ddprun that replaces a dead one has its rank at once", "[coordinator]") {
    Job job({.min_nodes = 2, .max_nodes = 2});
    job.start({"n1", "n2"});
    job.disconnect("n1");
    job.join_as("n1, started again", "n1");
    CHECK(job.sent<Abort>().at("n2").reason == "node n1 was lost: its ddprun was started again");
    job.stopped("n2");
    job.pass(job.state.config.reconnect_grace - 100ms);
    CHECK(job.state.phase == Phase::kGathering);  // the guard of the dead one may still be killing its workers
    job.pass(100ms);
    REQUIRE(job.state.phase == Phase::kOpening);
    job.store_opens();
    CHECK(job.sent<Assignment>().at("n1, started again").node_rank == NodeRank{0});
}

TEST_CASE("the only node of a job may be replaced by the next ddprun of its host", "[coordinator]") {
    Job job({.min_nodes = 1, .max_nodes = 2, .max_restarts = 1});
    const bool running = GENERATE(true, false);
    if (running) {
        job.start({"n1"});
        job.pass(31s);
        job.store_opens();
        REQUIRE(job.state.phase == Phase::kRunning);
    } else {
        job.join("n1");
        REQUIRE(job.state.phase == Phase::kGathering);
    }
    job.disconnect("n1");
    job.join_as("n1, started again", "n1");
    CHECK_FALSE(job.state.verdict);
    job.pass(60s);
    job.store_opens();
    CHECK(job.state.phase == Phase::kRunning);
    CHECK(job.state.group.members.contains("n1, started again"));
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

TEST_CASE("the circuit breaker holds also for a node that connects again with the same ddprun", "[coordinator]") {
    Job job({.min_nodes = 1, .max_nodes = 3});
    job.start({"n1", "n2", "n3"});
    job.state.hosts["n2"].early_losses = 2;
    job.lose("n2");
    job.join("n2");
    job.say("n2", GroupStopped{Generation{1}});
    job.pass(2min);
    CHECK(job.state.phase == Phase::kRunning);
    CHECK_FALSE(job.state.group.members.contains("n2"));
}

TEST_CASE("one outage is one strike", "[coordinator]") {
    Job job({.min_nodes = 1, .max_nodes = 2});
    job.start({"n1", "n2"});
    job.lose("n2");
    for (int i = 0; i < 3; ++i) {  // it is killing its workers
        job.join("n2");
        job.disconnect("n2");
        job.pass(1s);
    }
    CHECK(job.state.hosts.at("n2").strikes == 1);
}

TEST_CASE("a node that a signal ends has no strike", "[coordinator]") {
    Job job({.min_nodes = 1, .max_nodes = 2});
    job.start({"n1", "n2"});
    job.leave("n2");
    job.disconnect("n2");
    job.pass(1s);
    CHECK_FALSE(job.state.hosts.at("n2").strikes);
}

// ---- the deadline of a stop

/// Three nodes; n3's agent speaks, but has not reported the end of its workers until 1 s before the deadline.
Job almost_late(int min_nodes = 2) {
    Job job({.min_nodes = min_nodes, .max_nodes = 3, .max_restarts = 2});
    job.start({"n1", "n2", "n3"});
    job.fail("n1", failure(0, "n1"));
    job.stopped("n1");
    job.stopped("n2");
    job.pass(36s);
    REQUIRE(job.asked<Disconnect>().empty());
    return job;
}

TEST_CASE("a member that does not report the end of its workers has its grace and 10 s", "[coordinator]") {
    Job job = almost_late();
    job.pass(1200ms);
    CHECK(job.asked<Disconnect>() == std::vector{Disconnect{"n3"}});  // now its lease ends
    CHECK(job.state.phase == Phase::kStopping);
    SECTION("it may end them at last") {
        job.join("n3");
        CHECK(job.sent<Welcome>().at("n3").lost);
        job.stopped("n3");
        job.restart();
        CHECK(job.receivers<Assignment>() == Hosts{"n1", "n2", "n3"});
    }
    SECTION("the others go on without it") {
        job.pass(2500ms);
        CHECK(job.state.phase == Phase::kStopping);
        job.pass(500ms);
        CHECK(job.state.phase == Phase::kOpening);
        CHECK(job.state.hosts.at("n3").strikes == 1);
    }
    SECTION("also if it connects again, until its workers have ended") {
        job.join("n3");
        CHECK(job.sent<Welcome>().at("n3").lost);
        CHECK(job.receivers<Abort>() == Hosts{"n3"});
        job.pass(3s);
        CHECK(job.asked<Disconnect>() == std::vector{Disconnect{"n3"}});
        REQUIRE(job.state.phase == Phase::kOpening);
        job.store_opens();
        CHECK(job.receivers<Assignment>() == Hosts{"n1", "n2"});
        job.join("n3");
        CHECK(job.sent<Welcome>().at("n3").lost);
        job.pass(10min);
        CHECK(job.state.phase == Phase::kRunning);
        job.say("n3", GroupStopped{Generation{1}});
        CHECK(job.sent<Abort>().at("n1").reason == "node n3 joined");
    }
}

TEST_CASE("a node that cannot stop its workers does not count for a job of a fixed size", "[coordinator]") {
    Job job = almost_late(3);
    job.pass(5s);
    job.join("n3");  // it is still busy
    REQUIRE(job.state.phase == Phase::kGathering);
    CHECK_THAT(job.sent<Waiting>().empty() ? job.state.explanation.message.reason : job.sent<Waiting>().at("n1").reason,
               Contains("waiting 600 s for another node in its place"));
    Join replacement = job.greeting("n4");
    replacement.spare = false;
    job.join(replacement);
    CHECK(job.opens(2));
}

TEST_CASE("a member that was cut off when the stop began has its whole grace", "[coordinator]") {
    Job job({.min_nodes = 2, .max_nodes = 3, .max_restarts = 1});
    job.start({"n1", "n2", "n3"});
    job.feed(NodeDisconnected{.node = "n3", .broken = true});
    job.fail("n1", failure(0, "n1"));
    job.stopped("n1");
    job.stopped("n2");
    job.pass(2s);
    job.join("n3");
    job.pass(36s);
    CHECK(job.asked<Disconnect>().empty());
    job.pass(2s);
    CHECK(job.asked<Disconnect>() == std::vector{Disconnect{"n3"}});
}

// ---- drain

TEST_CASE("a drained node's workers stop, and the job goes on without it until it is taken back", "[coordinator]") {
    Job job({.min_nodes = 2, .max_nodes = 3});
    job.start({"n1", "n2", "n3"});
    job.feed(Ordered{{.command = Order::Command::kDrain, .node = "n2"}});
    CHECK_FALSE(job.asked<Reply>().at(0).answer.refused);
    CHECK(job.asked<Reply>().at(0).answer.text ==
          "node n2 is drained: its workers are being stopped, for which they have up to 30 s. `ddpctl undrain n2` lets "
          "it "
          "take part again");
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

TEST_CASE("the refusal to drain names what helps: a spare, another node, or a node that is drained", "[coordinator]") {
    const auto refusal = [](Job& job) {
        job.feed(Ordered{{.command = Order::Command::kDrain, .node = "n2"}});
        REQUIRE(job.asked<Reply>().at(0).answer.refused);
        return job.asked<Reply>().at(0).answer.text;
    };
    SECTION("the job has all its nodes") {
        Job job;
        job.start({"n1", "n2"});
        CHECK_THAT(refusal(job), EndsWith("1 other is here. Start another one first, with --spare"));
    }
    SECTION("it does not have all of them") {
        Job job({.min_nodes = 3, .max_nodes = 3});
        job.join("n1");
        job.join("n2");
        CHECK_THAT(refusal(job), EndsWith("1 other is here. Start another one first"));
    }
    SECTION("a node is drained") {
        Job job({.min_nodes = 2, .max_nodes = 3});
        job.start({"n1", "n2", "n3"});
        job.feed(Ordered{{.command = Order::Command::kDrain, .node = "n3"}});
        CHECK_THAT(refusal(job), EndsWith("1 other is here. Start another one first; node n3 is set aside: `ddpctl "
                                          "undrain n3` lets it take part"));
    }
}

TEST_CASE("a set-aside node that a signal ends does not end a job that waits for another one", "[coordinator]") {
    Job job({.min_nodes = 2, .max_nodes = 3, .max_restarts = 3});
    job.start({"n1", "n2", "n3"});
    job.feed(Ordered{{.command = Order::Command::kDrain, .node = "n3"}});
    job.restart();
    job.lose("n2");
    REQUIRE(job.state.phase == Phase::kGathering);
    job.pass(1s);
    CHECK_THAT(job.state.explanation.message.reason,
               Contains("node n3 is set aside: `ddpctl undrain n3` lets it take part"));
    job.leave("n3");
    CHECK_FALSE(job.state.verdict);
}

TEST_CASE("a job whose only node beside a set-aside one is cut off waits for it as if it were alone", "[coordinator]") {
    Job job({.min_nodes = 1, .max_nodes = 2, .max_restarts = 3});
    job.start({"n1", "n2"});
    job.feed(Ordered{{.command = Order::Command::kDrain, .node = "n2"}});
    job.restart();
    job.silent.insert("n1");
    job.pass(20s);
    CHECK(job.state.phase == Phase::kRunning);
    job.pass(15s);
    CHECK_FALSE(job.state.verdict);
    job.feed(Ordered{{.command = Order::Command::kUndrain, .node = "n2"}});
    CHECK(job.state.phase == Phase::kOpening);
}

TEST_CASE("a host keeps its name and what is known about it although it has several nodes", "[coordinator]") {
    Job job({.min_nodes = 3, .max_nodes = 4, .max_restarts = 3});
    for (const char* id : {"a", "b", "c", "d"}) job.join_as(id, "h");
    job.store_opens();
    REQUIRE(job.state.nodes.at("b").join.host == "h#2");
    job.lose("b");
    job.join_as("b again", "h");
    CHECK(job.state.nodes.at("b again").join.host == "h#2");
}

TEST_CASE("a drained node that comes back under another name takes part", "[coordinator]") {
    Job job({.min_nodes = 1, .max_nodes = 3});
    job.start({"n1", "h", "n3"});
    job.feed(Ordered{{.command = Order::Command::kDrain, .node = "h"}});
    job.disconnect("h");
    job.pass(1s);
    job.restart();
    job.join_as("the new ddprun of h", "h");
    job.join("h");
    job.say("h", GroupStopped{Generation{1}});
    CHECK(job.state.nodes.at("h").join.host == "h#2");
    job.pass(6s);
    job.feed(Ordered{{.command = Order::Command::kDrain, .node = "h#2"}});
    CHECK(job.asked<Reply>().size() == 1);
}

TEST_CASE("a drain does not count on a node that may be about to be lost", "[coordinator]") {
    Job job({.min_nodes = 2, .max_nodes = 3});
    job.start({"n1", "n2", "n3"});
    const auto drain_n3 = [&] {
        job.feed(Ordered{{.command = Order::Command::kDrain, .node = "n3"}});
        return job.asked<Reply>().at(0).answer;
    };
    job.silent = {"n2"};
    job.pass(2500ms);
    CHECK(drain_n3().refused);
    job.silent.clear();
    job.pass(1s);
    const Answer answer = drain_n3();
    CHECK_FALSE(answer.refused);
    CHECK_THAT(answer.text, Contains("its workers are being stopped, for which they have up to"));
    SECTION("and a node that is lost meanwhile is in the reason") {
        job.stopped("n1");
        job.stopped("n3");
        job.disconnect("n2");
        job.pass(1s);
        CHECK_THAT(job.verdict().reason, Contains("n3 was drained by ddpctl; node n2 was lost meanwhile"));
    }
}

TEST_CASE("the answer to the drain of the daemon's own host warns that the host must stay up", "[coordinator]") {
    Job job({.min_nodes = 1, .max_nodes = 2});
    const bool beside_daemon = GENERATE(true, false);
    job.feed(NodeMessage{"n1", job.greeting("n1"), beside_daemon});
    job.join("n2");
    job.feed(Ordered{{.command = Order::Command::kDrain, .node = "n1"}});
    const std::string text = job.asked<Reply>().at(0).answer.text;
    CHECK(
        text.ends_with("take part again. The job's ddprund runs on this host: the job ends if it is stopped there, or "
                       "the host is") == beside_daemon);
}

TEST_CASE("a host that is lost at the moment can be drained", "[coordinator]") {
    Job job({.min_nodes = 1, .max_nodes = 2});
    job.start({"n1", "n2"});
    job.lose("n2");
    job.feed(Ordered{{.command = Order::Command::kDrain, .node = "n2"}});
    CHECK_FALSE(job.asked<Reply>().at(0).answer.refused);
    job.join_as("n2 again", "n2");
    CHECK_THAT(job.sent<Waiting>().at("n2 again").reason, Contains("an operator has drained it"));
}
