// The state of a job and its nodes as ddpctl status shows them.
#include "rendezvous/daemon/status.hpp"

#include <algorithm>

#include "rendezvous/coordinator/hosts.hpp"
#include "tests/catch.hpp"
#include "tests/unit/rendezvous/coordinator/job.hpp"

using namespace ddprun;
using namespace ddprun::coordinator;
using Catch::Contains;
using Catch::EndsWith;
using Catch::StartsWith;

namespace {

Status status_of(const Job& job) { return daemon::status_of(job.state, job.now); }

NodeStatus node_of(const Job& job, const std::string& host) {
    const Status status = status_of(job);
    const auto node = std::ranges::find(status.nodes, host, &NodeStatus::host);
    REQUIRE(node != status.nodes.end());
    return *node;
}

std::string state_of(const Job& job, const std::string& host) { return node_of(job, host).state; }

void order(Job& job, Order::Command command, const std::string& node) {
    job.feed(Ordered{{kProtocolVersion, command, node}});
    REQUIRE(job.asked<Reply>().size() == 1);
    REQUIRE_FALSE(job.asked<Reply>()[0].answer.refused);
}

}  // namespace

TEST_CASE("the status of a running job has its size, its age, its restarts and the ranks of each node",
          "[daemon][unit]") {
    Job job = three(2);
    job.join("n4");
    job.pass(2s);
    const Status status = status_of(job);
    CHECK(status.run_id == "mnist");
    CHECK(status.generation == Generation{1});
    CHECK(status.state == "running for 2.0 s with 3 nodes (--nnodes 2:3); restarts 0 of 2");
    CHECK(status.nodes == std::vector<NodeStatus>{{"n1", NodeRank{0}, 0, 2, "running", true, true},
                                                  {"n2", NodeRank{1}, 2, 2, "running", true, true},
                                                  {"n3", NodeRank{2}, 4, 2, "running", true, true},
                                                  {"n4", std::nullopt, 0, 2, "spare", true}});
    CHECK(daemon::status_of(State{Config{.run_id = "run"}}, job.now).state == "waiting: no node has joined yet");
}

TEST_CASE("the status names the restarts of each role, and when a job will grow", "[daemon][unit]") {
    Job job({.min_nodes = 1, .max_nodes = 3, .max_restarts = 1});
    Join server = job.greeting("n1");
    server.programs.push_back({"server", 1, 3});
    job.join(server);
    job.pass(31s);
    job.store_opens();
    job.join("n2");
    job.pass(1s);
    CHECK(status_of(job).state ==
          "running for 1.0 s with 1 node (--nnodes 1:3); restarts with more nodes in 4.0 s; restarts 0 of 1 of role "
          "default, 0 of 3 of role server");
}

TEST_CASE("the status of a waiting job has what it waits for, and for how long it will", "[daemon][unit]") {
    Job job;
    job.join("n1");
    CHECK(state_of(job, "n1") == "waiting");
    job.pass(2s);
    CHECK_THAT(status_of(job).state,
               StartsWith("waiting for nodes for 2.0 s: 1 of 2 nodes are here; giving up after 600 s"));
    CHECK(node_of(job, "n1").fine);
}

TEST_CASE("the status explains a job whose needed node was lost", "[daemon][unit]") {
    Job job({.max_restarts = 1});
    job.start({"n1", "n2"});
    job.disconnect("n2");
    CHECK(state_of(job, "n2") == "disconnected, last heard 0 ms ago; it may come back");
    CHECK_FALSE(node_of(job, "n2").fine);
    job.pass(2s);
    CHECK_THAT(status_of(job).state, StartsWith("stopping the workers for ") && Contains(", still on n1") &&
                                         Contains(": node n2 was lost: connection closed; restarts 0 of 1"));
    job.all_stop();
    job.pass(10s);
    CHECK_THAT(status_of(job).state,
               StartsWith("waiting for nodes for ") &&
                   Contains(": 1 of 2 nodes are here, missing: n2 (last seen over 10 s ago) (node n2 was lost: "));
    CHECK_THAT(state_of(job, "n2"), StartsWith("lost, last heard 12.0 s ago"));
    CHECK_FALSE(node_of(job, "n2").fine);
}

TEST_CASE("the status shows that a node is silent before it is lost", "[daemon][unit]") {
    Job job = three();
    job.silent = {"n2"};
    job.pass(1s);
    CHECK(state_of(job, "n2") == "running");
    job.pass(1s);
    CHECK(state_of(job, "n2") == "running, last heard 2.0 s ago (lost after 3 s)");
    CHECK_FALSE(node_of(job, "n2").fine);
    CHECK(node_of(job, "n1").fine);
}

TEST_CASE("the status shows which workers are still to end, and that a stop takes long", "[daemon][unit]") {
    Job job = three();
    job.leave("n3", SIGTERM);
    CHECK(state_of(job, "n3") == "stopping its workers, leaving because of SIGTERM");
    CHECK(node_of(job, "n1").fine);
    job.stopped("n1");
    CHECK(state_of(job, "n1") == "stopped");
    job.pass(6s);
    CHECK_THAT(status_of(job).state, StartsWith("stopping the workers for 6.0 s, still on n2, n3: "));
    CHECK_FALSE(node_of(job, "n2").fine);
}

TEST_CASE("the status shows drained nodes until they are taken back, here or not", "[daemon][unit]") {
    Job job = three();
    order(job, Order::Command::kDrain, "n2");
    CHECK(state_of(job, "n2") == "stopping its workers, then set aside: an operator has drained it");
    job.all_stop();
    job.store_opens();
    CHECK(state_of(job, "n2") == "set aside: an operator has drained it");
    CHECK_FALSE(node_of(job, "n2").fine);
    CHECK_FALSE(node_of(job, "n2").node_rank);
    job.leave("n2");
    CHECK(state_of(job, "n2") == "not here; set aside if it joins: an operator has drained it");
    job.join("n2");
    CHECK(state_of(job, "n2") == "set aside: an operator has drained it");
    order(job, Order::Command::kUndrain, "n2");
    job.all_stop();
    job.store_opens();
    CHECK(state_of(job, "n2") == "running");
}

TEST_CASE("the status shows the hosts that have ended worker groups, and their cool-down", "[daemon][unit]") {
    Job job = three(9);
    for (int i = 0; i < 2; ++i) {
        job.fail("n2", failure(job.state.group.members.at("n2").assignment.rank_base, "n2"));
        job.all_stop();
        while (job.state.phase == Phase::kGathering) job.pass(100ms);
        job.store_opens();
        if (i == 0) CHECK_THAT(state_of(job, "n2"), StartsWith("running; has ended 1 worker group, the last "));
    }
    CHECK_THAT(state_of(job, "n2"), StartsWith("left out for ") && Contains(", unless the job needs it; has ended 2 "
                                                                            "worker groups, the last "));
    CHECK_FALSE(node_of(job, "n2").fine);
    CHECK_THAT(status_of(job).state, Contains("; restarts 2 of 9"));
}

TEST_CASE("the status shows that a lost node is set aside", "[daemon][unit]") {
    Job job = three();
    job.disconnect("n2");
    job.pass(2s);
    job.state.hosts["n2"].set_aside = "it was lost 3 times within 60 s of a start";
    CHECK_THAT(state_of(job, "n2"),
               StartsWith("lost, last heard ") &&
                   EndsWith("; set aside if it joins: it was lost 3 times within 60 s of a start"));
}

TEST_CASE("the status of nodes that have finished, and of a job that is over", "[daemon][unit]") {
    Job job;
    job.start({"n1", "n2"});
    job.succeeded("n1");
    job.pass(3s);
    CHECK(state_of(job, "n1") == "finished 3.0 s ago");
    CHECK(node_of(job, "n1").node_rank == NodeRank{0});
    CHECK(node_of(job, "n1").fine);
    job.succeeded("n2");
    REQUIRE(job.state.phase == Phase::kFinished);
    CHECK_THAT(status_of(job).state, StartsWith("over: "));
    for (const NodeStatus& node : status_of(job).nodes) CHECK(node.state == "done");
}

TEST_CASE("the status has the decisions with their age, oldest first, and not what each node did", "[daemon][unit]") {
    daemon::Decisions decisions(Config{.run_id = "run"});
    const TimePoint now{1000s};
    const auto feed = [&](Happening what, Duration after) {
        decisions.add(std::move(what), now + after);
        std::string log;
        while (const auto step = decisions.next()) log += step->reason;
        return log;
    };
    CHECK(feed(NodeMessage{"n1", Job().greeting("n1")}, 0s) == "node n1 joined with 1 worker");
    feed(NodeMessage{"n2", Job().greeting("n2")}, 1s);
    feed(StoreOpened{Generation{1}, 4000}, 2s);
    CHECK(daemon::status_of(decisions, now + 3s).decisions ==
          std::vector<Decision>{{2s, "generation 1 starts with 2 nodes"},
                                {1s, "generation 1 runs with 2 nodes and 2 workers"}});
}

TEST_CASE("a lost node whose host has a new ddprun is not in the status", "[daemon][unit]") {
    Job job({.min_nodes = 1, .max_nodes = 2, .max_restarts = 1});
    job.start({"n1", "n2"});
    job.silent = {"n2"};
    job.pass(4s);
    REQUIRE(job.state.nodes.at("n2").link == Link::kLost);
    CHECK(status_of(job).nodes.size() == 2);
    job.join_as("n2, started again", "n2");
    REQUIRE(job.state.nodes.at("n2, started again").join.host == "n2");
    CHECK(status_of(job).nodes.size() == 2);
}

TEST_CASE("a host that was lost twice has one row, of its newest ddprun", "[daemon][unit]") {
    const std::string again = GENERATE(as<std::string>(), "n2 again", "also n2");  // behind or before it in the table
    Job job({.min_nodes = 1, .max_nodes = 2, .max_restarts = 1});
    job.start({"n1", "n2"});
    job.silent = {"n2", again};
    job.pass(4s);
    job.join_as(again, "n2");
    job.restart();
    REQUIRE(job.state.group.members.contains(again));
    job.pass(4s);
    REQUIRE(job.state.nodes.at("n2").link == Link::kLost);
    REQUIRE(job.state.nodes.at(again).link == Link::kLost);
    CHECK(status_of(job).nodes.size() == 2);
    CHECK_THAT(state_of(job, "n2"), StartsWith("lost, last heard 4.0 s ago"));
}

TEST_CASE("of two lost nodes the one that has not reported the end of its workers may have some", "[daemon][unit]") {
    Job job({.min_nodes = 2, .max_nodes = 3, .max_restarts = 2});
    job.start({"n1", "n2", "n3"});
    const bool is_silent = GENERATE(false, true);  // then they are frozen, or dead
    CAPTURE(is_silent);
    if (is_silent) job.silent = {"n3"};
    job.fail("n1", failure(0, "n1"));
    job.stopped("n1");
    job.stopped("n2");
    job.pass(is_silent ? 4s : 41s);
    CHECK_THAT(state_of(job, "n3"), StartsWith("lost, last heard "));
    CHECK(node_of(job, "n3").busy == !is_silent);
}
