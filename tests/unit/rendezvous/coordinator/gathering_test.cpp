#include <fmt/format.h>

#include <iterator>

#include "common/exit_codes.hpp"
#include "common/job_limits.hpp"
#include "tests/catch.hpp"
#include "tests/unit/rendezvous/coordinator/job.hpp"

using namespace ddprun;
using namespace ddprun::protocol;
using namespace ddprun::coordinator;
using Catch::Contains;

TEST_CASE("the round closes at once when MAX nodes are here", "[coordinator]") {
    Job job({.min_nodes = 2, .max_nodes = 2, .slots = 4});
    job.join("n1");
    CHECK(job.sent<Welcome>().at("n1") == Welcome{"mnist", 1s, 3s, 1s, 30s, "n1", "session", true});
    CHECK(job.sent<Waiting>().at("n1").reason == "1 of 2 nodes are here; giving up after 600 s");
    CHECK(job.sent<Waiting>().at("n1").present == Hosts{"n1"});
    job.join("n2");
    CHECK(job.opens(1));
    CHECK(job.sent<Waiting>().empty());

    job.store_opens(4001);
    const auto assigned = job.sent<Assignment>();
    CHECK(assigned.size() == 2);
    CHECK(assigned.at("n1") == Assignment{Generation{1}, NodeRank{0}, 2, 0, 8, "", 4001, 0, 0, "", {}, {{0, 8}}});
    CHECK(assigned.at("n2") == Assignment{Generation{1}, NodeRank{1}, 2, 4, 8, "", 4001, 0, 0, "", {}, {{4, 8}}});
    CHECK(job.actions.size() == 2);
    CHECK(job.state.phase == Phase::kRunning);
}

TEST_CASE("with MIN nodes the round waits for the last call, and not longer", "[coordinator]") {
    Job job({.min_nodes = 2, .max_nodes = 3});
    job.join("n1");
    job.pass(20s);
    job.join("n2");
    CHECK(job.asked<OpenStore>().empty());
    CHECK_THAT(job.sent<Waiting>().at("n2").reason, Contains("2 of 2 to 3 nodes are here") && Contains("at most 30 s"));
    job.pass(29900ms);
    CHECK(job.asked<OpenStore>().empty());
    job.pass(100ms);
    CHECK(job.opens(1));
}

TEST_CASE("a last call that lost a node below MIN starts again", "[coordinator]") {
    Job job({.min_nodes = 2, .max_nodes = 3});
    job.join("n1");
    job.join("n2");
    job.pass(29s);
    job.disconnect("n2");
    job.pass(5s);
    CHECK(job.asked<OpenStore>().empty());
    job.join("n3");
    job.pass(29900ms);
    CHECK(job.asked<OpenStore>().empty());
    job.pass(100ms);
    CHECK(job.opens(1));
}

TEST_CASE(
    "too few nodes until the join timeout end the job, and the verdict names the present and counts the missing nodes",
    "[coordinator]") {
    Job job({.min_nodes = 4, .max_nodes = 4});
    job.join("n10");
    job.pass(300s);
    job.join("n2");
    job.pass(299900ms);
    CHECK_FALSE(job.ends_job);
    job.pass(100ms);
    CHECK(job.verdict().outcome == Outcome::kInfrastructure);
    CHECK(job.verdict().exit_code == exit_code::kInfrastructure);
    CHECK_THAT(job.verdict().reason, Contains("needs 4 nodes") && Contains("n2, n10") && Contains("2 are missing") &&
                                         Contains("600 s") && Contains("Start ddprun on the missing nodes"));
    CHECK(job.verdict().hint == "");  // the same command on the same nodes would fail again
    CHECK(job.receivers<Finished>() == Hosts{"n10", "n2"});
}

TEST_CASE("waiting nodes get the reason when it changes, and every five seconds", "[coordinator]") {
    Job job({.min_nodes = 3, .max_nodes = 3});
    job.join("n1");
    job.pass(1s);
    CHECK(job.sent<Waiting>().size() == 1);  // the same that it got on joining
    job.pass(4s);
    CHECK(job.sent<Waiting>().empty());
    job.pass(1s);
    CHECK(job.sent<Waiting>().at("n1").waited > 4s);
    job.pass(1s);
    job.join("n2");
    CHECK(job.receivers<Waiting>() == Hosts{"n2"});
    job.pass(100ms);
    CHECK(job.receivers<Waiting>() == Hosts{"n1", "n2"});
    CHECK(job.sent<Waiting>().at("n1").reason == "2 of 3 nodes are here; giving up after 600 s");
    CHECK(job.sent<Waiting>().at("n1").present == Hosts{"n1", "n2"});
}

TEST_CASE("a Join that cannot be served is refused with a sentence and changes nothing", "[coordinator]") {
    Job job({.min_nodes = 2, .max_nodes = 3});
    job.join("n1");
    Join bad = job.greeting("n2");
    std::string says;
    SECTION("other number of nodes") {
        bad.min_nodes = bad.max_nodes = 2;
        says = "this job runs with --nnodes 2:3, this node was started with --nnodes 2:";
    }
    SECTION("other rule for growth") {
        bad.scale_up = ScaleUp::kNever;
        says = "--scale-up immediate, this node was started with --scale-up never";
    }
    SECTION("other restarts") {
        bad.programs[0].max_restarts = 3;
        says = "--max-restarts 0, this node was started with --max-restarts 3";
    }
    SECTION("other run") {
        bad.run_id = "cifar";
        says = "run 'mnist', this node was started for run 'cifar'";
    }
    SECTION("the job of another daemon") {
        bad.session = "of a daemon that is gone";
        says = "not the daemon that the job was started with";
    }
    SECTION("other protocol") {
        bad = Join{};
        bad.node = "n2";
        bad.protocol = kProtocolVersion + 1;
        says = "version 9 of the control protocol, this node version 10";
    }
    SECTION("no workers") {
        bad.programs.clear();
        says = "1 to 4096 workers";
    }
    SECTION("a program without workers") {
        bad.programs[0].slots = 0;
        says = "a program has at least 1 worker, not 0";
    }
    SECTION("so many workers that ranks would overflow") {
        bad.programs.resize(2);
        bad.programs[0].slots = bad.programs[1].slots = 2'000'000'000;
        says = "1 to 4096 workers";
    }
    SECTION("MIN above MAX") {
        bad.min_nodes = 4;
        says = "MIN <= MAX";
    }
    SECTION("no name") {
        bad.host.clear();
        says = "name of 1 to 255 bytes";
    }
    SECTION("no id") {
        bad.node.clear();
        says = "id of 1 to 255 bytes";
    }
    job.join(bad);
    REQUIRE(job.actions.size() == 1);
    CHECK(job.asked<Refuse>().at(0).node == bad.node);
    CHECK_THAT(job.asked<Refuse>().at(0).reason, Contains(says));
    CHECK(job.state.nodes.size() == 1);
}

TEST_CASE("a job takes kMaxNodes nodes, spares included, nodes that are lost do not count", "[coordinator]") {
    Job job({.min_nodes = 2, .max_nodes = 2});
    job.start({"n1", "n2"});
    while (std::ssize(job.state.nodes) < kMaxNodes) {
        Node spare;
        spare.join = job.greeting(fmt::format("spare{}", job.state.nodes.size()));
        job.state.nodes.add(spare.join.node, spare);
    }
    job.join("late");
    CHECK_THAT(job.asked<Refuse>().at(0).reason,
               Contains("16384 nodes are connected to this job, or lost their connection a moment ago") &&
                   Contains("or end a spare one first"));
    CHECK(job.asked<Refuse>().at(0).try_again);  // one of them may end, so this is no wrong usage
    job.state.nodes.change("spare2", [](Node& node) { node.link = Link::kLost; });
    job.join("late");
    CHECK(job.asked<Refuse>().empty());
    CHECK(job.state.nodes.contains("late"));
}

TEST_CASE("a refused first node leaves the job's options open", "[coordinator]") {
    Job job;
    Join bad = job.greeting("n1");
    bad.max_nodes = 0;
    job.join(bad);
    CHECK(job.asked<Refuse>().size() == 1);
    CHECK_FALSE(job.state.shape);
    job.join("n1");
    CHECK(job.receivers<Welcome>() == Hosts{"n1"});
}

TEST_CASE("ranks follow the requested ranks, then natural host-name order, then the node id", "[coordinator]") {
    Job job({.min_nodes = 6, .max_nodes = 6});
    const auto add = [&](std::string id, std::string host, std::optional<int> place, int slots) {
        Join join = job.greeting(id);
        join.host = std::move(host);
        join.node_rank = place;
        join.programs[0].slots = slots;
        job.join(join);
    };
    add("a", "n10", {}, 1);
    add("b", "n2", {}, 2);
    add("c", "n2", {}, 3);
    add("d", "zeta", 7, 4);
    add("e", "eta", 3, 5);
    add("f", "n02", {}, 6);
    job.store_opens();
    std::vector<std::pair<int, std::string>> order;
    std::map<std::string, int> base;
    for (const auto& [id, assignment] : job.sent<Assignment>()) {
        order.emplace_back(number(assignment.node_rank), id);
        base[id] = assignment.rank_base;
        CHECK(assignment.world_size == 21);
        CHECK(assignment.node_count == 6);
    }
    std::ranges::sort(order);
    CHECK(order ==
          std::vector<std::pair<int, std::string>>{{0, "e"}, {1, "d"}, {2, "f"}, {3, "b"}, {4, "c"}, {5, "a"}});
    CHECK(base == std::map<std::string, int>{{"e", 0}, {"d", 5}, {"f", 9}, {"b", 15}, {"c", 17}, {"a", 20}});
}

TEST_CASE("a store that cannot be opened for a moment is tried again", "[coordinator]") {
    Job job;
    job.join("n1");
    job.join("n2");
    job.feed(StoreFailed{Generation{1}, "too many open files"});
    CHECK_THAT(job.reason, Contains("too many open files"));
    job.pass(200ms);
    CHECK(job.asked<OpenStore>().empty());
    job.pass(1s);  // one try has no answer yet
    CHECK(job.opens(1));
    job.store_opens();
    CHECK(job.receivers<Assignment>() == Hosts{"n1", "n2"});
    CHECK_FALSE(job.state.store_retry);
}

TEST_CASE("a store that cannot be opened for long ends the job with its reason", "[coordinator]") {
    Job job;
    job.join("n1");
    job.join("n2");
    int tries = 1;
    for (job.feed(StoreFailed{Generation{1}, "no free port"}); !job.state.verdict; ++tries) {
        job.pass(300ms);
        REQUIRE(job.opens(1));
        job.feed(StoreFailed{Generation{1}, "no free port"});
    }
    CHECK(tries == 18);  // in 5 s
    CHECK(job.verdict().outcome == Outcome::kInfrastructure);
    CHECK(job.verdict().exit_code == exit_code::kInfrastructure);
    CHECK_THAT(job.verdict().reason, Contains("no free port"));
    CHECK_THAT(job.verdict().hint, Contains("host of the rendezvous daemon") && !Contains("same command"));
    CHECK(job.receivers<Finished>() == Hosts{"n1", "n2"});
}

TEST_CASE("answers about another generation's store change nothing, and such a store is closed", "[coordinator]") {
    Job job;
    job.join("n1");
    job.join("n2");
    job.feed(StoreOpened{Generation{7}, 4007});
    CHECK(job.closes(7));
    job.feed(StoreFailed{Generation{7}, "late"});
    CHECK(job.actions.empty());
    CHECK(job.state.phase == Phase::kOpening);
    job.store_opens();
    CHECK(job.receivers<Assignment>() == Hosts{"n1", "n2"});
    job.store_opens();
    CHECK(job.closes(1));
    CHECK(job.state.phase == Phase::kRunning);
}

TEST_CASE("a node that leaves before the store is open gets no workers", "[coordinator]") {
    Job job({.min_nodes = 2, .max_nodes = 3});
    for (const char* host : {"n1", "n2", "n3"}) job.join(host);
    SECTION("enough are left") {
        job.disconnect("n2");
        job.store_opens();
        CHECK(job.receivers<Assignment>() == Hosts{"n1", "n3"});
        CHECK(job.sent<Assignment>().at("n3").node_rank == NodeRank{1});
    }
    SECTION("too few are left") {
        job.disconnect("n2");
        job.leave("n3");
        CHECK(job.receivers<Finished>() == Hosts{"n3"});
        job.store_opens();
        CHECK(job.closes(1));
        CHECK(job.receivers<Assignment>().empty());
        CHECK(job.state.phase == Phase::kGathering);
    }
    SECTION("one more has come") {
        job.disconnect("n2");
        job.join("n4");
        job.store_opens();
        CHECK(job.receivers<Assignment>() == Hosts{"n1", "n3", "n4"});
    }
}

TEST_CASE("nodes beyond MAX are spares, and the reason says so", "[coordinator]") {
    Job job({.min_nodes = 1, .max_nodes = 2});
    job.start({"n1", "n2"});
    job.join("n3");
    CHECK(job.receivers<Abort>().empty());
    CHECK(job.sent<Waiting>().at("n3").reason == "spare: the job runs with 2 of 2 nodes");
    CHECK(job.state.phase == Phase::kRunning);
}

TEST_CASE("before the first group a node that leaves ends the job only when it is the last", "[coordinator]") {
    Job job({.min_nodes = 3, .max_nodes = 3});
    job.join("n1");
    job.join("n2");
    job.leave("n1", SIGINT);
    CHECK(job.sent<Finished>().at("n1").verdict.exit_code == 128 + SIGINT);
    CHECK(job.asked<Disconnect>() == std::vector{Disconnect{"n1"}});
    CHECK_FALSE(job.ends_job);
    job.leave("n2", SIGINT);
    CHECK(job.verdict().outcome == Outcome::kStopped);
    CHECK(job.verdict().exit_code == 128 + SIGINT);
    CHECK(job.verdict().reason == "node n2 was interrupted by SIGINT");
}

TEST_CASE("when every waiting node is lost the job ends", "[coordinator]") {
    Job job;
    job.join("n1");
    job.disconnect("n1");
    CHECK_FALSE(job.ends_job);
    job.pass(1s);
    CHECK(job.verdict().outcome == Outcome::kInfrastructure);
    CHECK(job.verdict().exit_code == exit_code::kInfrastructure);
    CHECK_THAT(job.verdict().hint, Contains("when the job's nodes can reach each other"));
}

TEST_CASE("a waiting node whose connection breaks may reconnect within the grace", "[coordinator]") {
    Job job;
    job.join("n1");
    job.disconnect("n1");
    job.pass(900ms);
    job.join("n1");
    CHECK(job.receivers<Welcome>() == Hosts{"n1"});
    job.join("n2");
    CHECK(job.opens(1));
}

TEST_CASE("ticks before any node has joined do nothing", "[coordinator]") {
    Job job;
    job.pass(3s);
    CHECK(job.actions.empty());
}

TEST_CASE("thousands of nodes form a group, and an explanation counts them", "[coordinator]") {
    constexpr int kNodes = 4000;
    Job job({.min_nodes = kNodes, .max_nodes = kNodes, .slots = 8});
    for (int i = kNodes; i > 1; --i) job.join("n" + std::to_string(i));
    const Waiting waiting = job.sent<Waiting>().at("n2");
    CHECK(waiting.reason == "3999 of 4000 nodes are here; giving up after 600 s");
    CHECK(waiting.present.empty());
    job.join("n1");
    job.store_opens();
    const auto assigned = job.sent<Assignment>();
    CHECK(assigned.size() == kNodes);
    CHECK(assigned.at("n1").rank_base == 0);
    CHECK(assigned.at("n4000").rank_base == 3999 * 8);
    CHECK(assigned.at("n4000").world_size == 32'000);
}

TEST_CASE("heartbeats go to every connected node once per interval", "[coordinator]") {
    Job job;
    job.start({"n1", "n2"});
    job.pass(1s);
    int beats = 0;
    for (const Send& send : job.asked<Send>()) beats += std::holds_alternative<Heartbeat>(send.message) ? 1 : 0;
    CHECK(beats == 2);
}

TEST_CASE("nodes of one host get names of their own, in the order in which they join", "[coordinator]") {
    Job job({.min_nodes = 3, .max_nodes = 4});
    const auto join = [&](const std::string& id) {
        Join greeting = job.greeting(id);
        greeting.host = "vm";
        job.join(greeting);
        return job.sent<Welcome>().at(id).node_name;
    };
    CHECK(join("c") == "vm");
    CHECK(join("a") == "vm#2");
    CHECK(join("b") == "vm#3");
    job.disconnect("a");
    CHECK(join("a") == "vm#2");  // it reconnected
    job.disconnect("c");
    job.pass(2s);  // and is lost
    CHECK(join("d") == "vm");
    job.leave("a");
    CHECK(join("e") == "vm#4");
    CHECK(job.sent<Waiting>().at("e").present == Hosts{"vm", "vm#3", "vm#4"});
}

TEST_CASE("ranks follow the order of those names", "[coordinator]") {
    Job job;
    for (const char* id : {"z", "a"}) {
        Join greeting = job.greeting(id);
        greeting.host = "vm";
        job.join(greeting);
    }
    job.store_opens();
    CHECK(job.sent<Assignment>().at("z").node_rank == NodeRank{0});
    CHECK(job.sent<Assignment>().at("a").node_rank == NodeRank{1});
}
