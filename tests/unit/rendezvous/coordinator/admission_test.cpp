// Which nodes a job takes: those of its user that run its command, and of a job of a fixed size no further one.

#include "rendezvous/coordinator/admission.hpp"

#include "tests/catch.hpp"
#include "tests/unit/rendezvous/coordinator/job.hpp"

using namespace ddprun;
using namespace ddprun::protocol;
using namespace ddprun::coordinator;
using Catch::Contains;

namespace {

Join launched(const Job& job, const std::string& host, const std::string& command, const std::string& user = "alice") {
    Join join = job.greeting(host);
    join.launch = {command, std::hash<std::string>{}(command), user, user == "alice" ? 1000u : 1001u};
    join.spare = false;
    return join;
}

std::string refusal_of(const Job& job) {
    const auto refused = job.asked<Refuse>();
    return refused.empty() ? "" : refused.at(0).reason;
}

}  // namespace

TEST_CASE("a node with another command or of another user is refused, and the job goes on waiting", "[coordinator]") {
    Job job;
    job.join(launched(job, "n1", "train --lr 1"));
    Join other = launched(job, "n2", "train --lr 2");
    std::string says;
    SECTION("other arguments") {
        says = "serves the job 'train --lr 1', and this node was started with 'train --lr 2'.";
    }
    SECTION("other arguments behind the part that is shown") {
        other.launch.command = "train --lr 1";
        says = "was started with other arguments, in the part that is not shown.";
    }
    SECTION("another user with the same command") {
        other = launched(job, "n2", "train --lr 1", "bob");
        says =
            "a job of user alice, and this node was started by user bob. For a job of its own, pass another "
            "--rdzv-endpoint or --master-port";
    }
    job.join(other);
    CHECK_THAT(refusal_of(job), Contains(says));
    CHECK_FALSE(job.asked<Refuse>().at(0).try_again);
    CHECK(job.state.nodes.size() == 1);
    job.join(launched(job, "n3", "train --lr 1"));
    CHECK(job.opens(1));
}

TEST_CASE("hosts may give a user different numbers, or different names", "[coordinator]") {
    Job job;
    job.join(launched(job, "n1", "train"));
    Join second = launched(job, "n2", "train");
    SECTION("another number") { second.launch.uid = 4242; }
    SECTION("another name") { second.launch.user = "1000"; }
    job.join(second);
    CHECK(job.opens(1));
}

TEST_CASE("a job that cannot be restarted refuses one node too many for good", "[coordinator]") {
    Job job;
    for (const char* host : {"n1", "n2", "n3"}) job.join(launched(job, host, "train"));
    CHECK_THAT(refusal_of(job), Contains("which has all its nodes already"));
    CHECK_FALSE(job.asked<Refuse>().at(0).try_again);
}

TEST_CASE("the restarts of a role are forgotten with its last node, until a group has run", "[coordinator]") {
    Job job({.min_nodes = 3, .max_nodes = 3});
    job.join(launched(job, "n0", "train"));
    Join server = launched(job, "n1", "train");
    server.programs = {{"server", 1, 0}};
    job.join(server);
    job.leave("n1");
    server = launched(job, "n2", "train");
    server.programs = {{"server", 1, 3}};
    job.join(server);
    CHECK(refusal_of(job).empty());
    CHECK(job.state.roles.at("server").max_restarts == 3);
}

TEST_CASE("a node too many tries again if it may replace one of the nodes, whatever the roles of the others",
          "[coordinator]") {
    Job job;
    Join server = launched(job, "n1", "train");
    server.programs = {{"server", 1, 0}};
    Join trainer = launched(job, "n2", "train");
    trainer.programs = {{"trainer", 1, 3}};
    job.join(server);
    job.join(trainer);
    trainer.node = trainer.host = "n3";
    job.join(trainer);
    CHECK_THAT(refusal_of(job), Contains("which has all its nodes already"));
    CHECK(job.asked<Refuse>().at(0).try_again);
}

TEST_CASE("nodes that all name the job may run different commands", "[coordinator]") {
    Job job;
    const bool first_names = GENERATE(true, false);
    const bool second_names = GENERATE(true, false);
    Join first = launched(job, "n1", "trainer");
    Join second = launched(job, "n2", "server");
    if (first_names) first.run_id = "mnist";
    if (second_names) second.run_id = "mnist";
    job.join(first);
    job.join(second);
    CHECK(refusal_of(job).empty() == (first_names && second_names));
}

TEST_CASE("a job of a fixed number of nodes refuses one too many, unless that asks to be a spare", "[coordinator]") {
    Job job({.max_restarts = 1});
    for (const char* host : {"n1", "n2"}) job.join(launched(job, host, "train"));
    const bool running = GENERATE(false, true);
    if (running) job.store_opens();
    Join third = launched(job, "n3", "train");
    SECTION("it does not ask") {
        job.join(third);
        CHECK_THAT(refusal_of(job),
                   Contains("the job 'train' of user alice, which has all its nodes already: n1, n2 (--nnodes 2)") &&
                       Contains("With --spare"));
        CHECK(job.state.nodes.size() == 2);
        // One of them may have been lost just now, without a sign yet.
        CHECK(job.asked<Refuse>().at(0).try_again);
        CHECK(job.asked<Refuse>().at(0).try_for == job.state.config.lost_after + job.state.config.reconnect_grace);
    }
    SECTION("it asks") {
        third.spare = true;
        job.join(third);
        CHECK(refusal_of(job).empty());
    }
    SECTION("a node has lost its connection: this one may be there to replace it") {
        job.disconnect("n2");
        job.join(third);
        CHECK(refusal_of(job).empty());
    }
    SECTION("a node is silent") {
        job.silent = {"n2"};
        job.pass(2100ms);
        job.join(third);
        CHECK(refusal_of(job).empty());
    }
    SECTION("a node leaves before the job runs; later its signal ends the job") {
        job.leave("n2");
        job.join(third);
        CHECK(refusal_of(job).empty() == !running);
    }
    SECTION("it was counted as lost and comes back") {
        third.session = job.state.config.session;
        job.join(third);
        CHECK(refusal_of(job).empty());
    }
}

TEST_CASE("a node does not begin as the rest of a job that is about to end, but tries again", "[coordinator]") {
    Job job({.min_nodes = 1, .max_nodes = 1});
    job.join(launched(job, "n1", "train"));
    job.store_opens();
    Join next = launched(job, "n2", GENERATE(as<std::string>(), "train", "another"));
    std::string says;
    SECTION("its node has lost its connection, and it is not to be restarted") {
        job.disconnect("n1");
        says = "has lost the connection to a node and is not to be restarted (--max-restarts 0)";
    }
    SECTION("it is being stopped by a signal") {
        job.leave("n1");
        says = "which is ending: node n1 was interrupted by SIGTERM";
    }
    SECTION("it has failed") {
        job.fail("n1", failure(0, "n1"));
        says = "which is ending: rank 0 on n1 was killed by SIGKILL";
    }
    job.join(next);
    CHECK_THAT(refusal_of(job), Contains("this daemon serves the job 'train', ") && Contains(says));
    CHECK(job.asked<Refuse>().at(0).try_again);
    CHECK(job.state.nodes.size() == 1);
}

TEST_CASE("a job has room for a joining node unless it is complete or ending", "[coordinator]") {
    struct Row {
        const char* description;
        Shape shape;
        void (*happen)(Job&);
        Room room;
    };
    const auto row = GENERATE(values<Row>({
        {"no node", {}, [](Job&) {}, Room::kOpen},
        {"one node of two", {}, [](Job& job) { job.join("n1"); }, Room::kOpen},
        {"all nodes, before the start",
         {},
         [](Job& job) {
             job.join("n1");
             job.join("n2");
         },
         Room::kComplete},
        {"all nodes",
         {},
         [](Job& job) {
             job.start({"n1", "n2"});
         },
         Room::kComplete},
        {"all nodes of 1:2",
         {.min_nodes = 1},
         [](Job& job) {
             job.start({"n1", "n2"});
         },
         Room::kOpen},
        {"a silent member",
         {},
         [](Job& job) {
             job.start({"n1", "n2"});
             job.silent = {"n2"};
             job.pass(2100ms);
         },
         Room::kOpen},
        {"a killed member, not to be restarted",
         {},
         [](Job& job) {
             job.start({"n1", "n2"});
             job.disconnect("n2");
         },
         Room::kEnding},
        {"a killed member, with a restart left",
         {.max_restarts = 1},
         [](Job& job) {
             job.start({"n1", "n2"});
             job.disconnect("n2");
         },
         Room::kOpen},
        {"stopping, not to be restarted",
         {},
         [](Job& job) {
             job.start({"n1", "n2"});
             job.fail("n1", failure(0, "n1"));
         },
         Room::kEnding},
        {"stopping, to be restarted",
         {.max_restarts = 1},
         [](Job& job) {
             job.start({"n1", "n2"});
             job.fail("n1", failure(0, "n1"));
         },
         Room::kComplete},
        {"finished",
         {},
         [](Job& job) {
             job.start({"n1", "n2"});
             job.succeeded("n1");
             job.succeeded("n2");
         },
         Room::kEnding},
    }));
    CAPTURE(row.description);
    Job job(row.shape);
    row.happen(job);
    CHECK(room_for_node(job.state) == row.room);
}

TEST_CASE("a spare may join a job that has lost a node for good", "[coordinator]") {
    Job job({.min_nodes = 1, .max_nodes = 1});
    job.join(launched(job, "n1", "train"));
    job.store_opens();
    job.disconnect("n1");
    Join spare = launched(job, "n2", "train");
    spare.spare = true;
    job.join(spare);
    CHECK(refusal_of(job).empty());
}

TEST_CASE("a job of MIN to MAX nodes takes nodes beyond MAX as spares", "[coordinator]") {
    Job job({.min_nodes = 1, .max_nodes = 2});
    for (const char* host : {"n1", "n2", "n3"}) job.join(launched(job, host, "train"));
    CHECK(refusal_of(job).empty());
    CHECK(job.state.nodes.size() == 3);
}

TEST_CASE("ranks within a role count the workers of that role alone", "[coordinator]") {
    Job job({.min_nodes = 4, .max_nodes = 4, .slots = 2});
    for (const auto& [host, role] :
         {std::pair("n1", "trainer"), {"n2", "server"}, {"n3", "trainer"}, {"n4", "server"}}) {
        Join join = job.greeting(host);
        join.programs[0].role = role;
        if (host == std::string("n4")) join.programs[0].slots = 3;
        job.join(join);
    }
    job.store_opens();
    const auto assigned = job.sent<Assignment>();
    const auto role_of = [&](const char* host) {
        const RoleRanks& ranks = assigned.at(host).program_roles.at(0);
        return std::pair(ranks.base, ranks.world_size);
    };
    CHECK(role_of("n1") == std::pair(0, 4));
    CHECK(role_of("n2") == std::pair(0, 5));
    CHECK(role_of("n3") == std::pair(2, 4));
    CHECK(role_of("n4") == std::pair(2, 5));
    CHECK(assigned.at("n4").rank_base == 6);
}

TEST_CASE("a node of another user does not learn the command of a job that ends, or how it ends", "[coordinator]") {
    Job job({.min_nodes = 1, .max_nodes = 1});
    job.join(launched(job, "n1", "train --token x"));
    job.store_opens();
    SECTION("its node has lost its connection") { job.disconnect("n1"); }
    SECTION("it is being stopped") { job.fail("n1", failure(0, "n1")); }
    SECTION("it is over") {
        job.fail("n1", failure(0, "n1"));
        job.disconnect("n1");
        job.pass(1s);
        CHECK(job.state.phase == Phase::kFinished);
    }
    job.join(launched(job, "x", "train", "bob"));
    CHECK_THAT(refusal_of(job), Contains("a job of user alice, and this node was started by user bob") &&
                                    !Contains("train") && !Contains("killed") && !Contains("connection"));
    CHECK(job.asked<Refuse>().at(0).try_again);
}

TEST_CASE("a node of another user does not learn the id of the run", "[coordinator]") {
    Job job;
    job.join(launched(job, "n1", "train"));
    Join stranger = launched(job, "x", "train", "bob");
    stranger.run_id = "another";
    job.join(stranger);
    CHECK_THAT(refusal_of(job), Contains("a job of user alice") && !Contains("mnist"));
}
