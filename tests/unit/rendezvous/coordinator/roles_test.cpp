// Several programs and roles in one job: ranks within a role, and the restarts of each role.

#include "tests/catch.hpp"
#include "tests/unit/rendezvous/coordinator/job.hpp"

using namespace ddprun;
using namespace ddprun::coordinator;
using Catch::Contains;

namespace {

const Program kTrainer{"trainer", 2, 2};
const Program kServer{"server", 1, 0};

Join running(const Job& job, const std::string& host, std::vector<Program> programs) {
    Join join = job.greeting(host);
    join.programs = std::move(programs);
    return join;
}

/// One node with two trainers, ranks 0 and 1, and a server, rank 2.
Job trainer_and_server() {
    Job job({.min_nodes = 1, .max_nodes = 1});
    job.join(running(job, "n1", {kTrainer, kServer}));
    job.store_opens();
    return job;
}

/// Two nodes: trainers on n1, a server on n2.
Job a_node_each() {
    Job job;
    job.join(running(job, "n1", {kTrainer}));
    job.join(running(job, "n2", {kServer}));
    job.store_opens();
    return job;
}

std::vector<std::string> refusals(const Job& job) {
    std::vector<std::string> reasons;
    for (const Refuse& refuse : job.asked<Refuse>()) reasons.push_back(refuse.reason);
    return reasons;
}

}  // namespace

TEST_CASE("programs have ranks within their role, in the order of nodes and programs", "[coordinator]") {
    Job job;
    job.join(running(job, "n1", {kTrainer, kServer, kTrainer}));
    job.join(running(job, "n2", {kServer, {"evaluator", 3, 0}, kTrainer}));
    job.store_opens();
    const auto assigned = job.sent<Assignment>();
    CHECK(assigned.at("n1").world_size == 11);
    CHECK(assigned.at("n1").program_roles == std::vector<RoleRanks>{{0, 6}, {0, 2}, {2, 6}});
    CHECK(assigned.at("n2").rank_base == 5);
    CHECK(assigned.at("n2").program_roles == std::vector<RoleRanks>{{1, 2}, {0, 3}, {4, 6}});
    CHECK(assigned.at("n2").max_restarts == 2);
    CHECK_FALSE(assigned.at("n2").restart);
}

TEST_CASE("a failure spends a restart of its own role, and the next group names that", "[coordinator]") {
    Job job = trainer_and_server();
    job.fail("n1", failure(1, "n1"));
    job.stopped("n1");
    CHECK_THAT(job.reason, Contains("restart 1 of 2 of role trainer"));
    job.store_opens();
    CHECK(job.sent<Assignment>().at("n1").restart == Restart{1, 2, "trainer"});
    CHECK(job.state.roles.at("trainer") == RestartBudget{2, 1});
    CHECK(job.state.roles.at("server") == RestartBudget{0, 0});
}

TEST_CASE("the failure of a role without restarts ends the job, although another role has some left", "[coordinator]") {
    Job job = trainer_and_server();
    job.fail("n1", failure(2, "n1"));
    job.stopped("n1");
    CHECK(job.verdict().outcome == Outcome::kWorkerFailed);
    CHECK(job.verdict().culprit->role == "server");
    CHECK_THAT(job.verdict().reason, Contains("; no restart (--max-restarts 0 of role server)"));
}

TEST_CASE("a role whose restarts are spent ends the job with its next failure", "[coordinator]") {
    Job job = trainer_and_server();
    for (int restart = 1; restart <= 2; ++restart) {
        job.fail("n1", failure(0, "n1"));
        job.stopped("n1");
        job.pass(1s);  // the pause after an early failure
        job.store_opens();
        REQUIRE(job.sent<Assignment>().at("n1").restart == Restart{restart, 2, "trainer"});
    }
    job.fail("n1", failure(1, "n1"));
    job.stopped("n1");
    CHECK_THAT(job.verdict().reason, Contains("; no restart left (--max-restarts 2 of role trainer)"));
    CHECK(job.verdict().restarts == 2);
}

TEST_CASE("a job of one role names it in no message", "[coordinator]") {
    Job job({.min_nodes = 1, .max_nodes = 1});
    job.join(running(job, "n1", {{"trainer", 1, 1}, {"trainer", 1, 1}}));
    job.store_opens();
    job.fail("n1", failure(1, "n1"));
    job.stopped("n1");
    job.store_opens();
    CHECK(job.sent<Assignment>().at("n1").restart == Restart{1, 1, ""});
    job.fail("n1", failure(0, "n1"));
    job.stopped("n1");
    CHECK(job.verdict().culprit->role.empty());
    CHECK_THAT(job.verdict().reason, Contains("; no restart left (--max-restarts 1)"));
}

TEST_CASE("nodes agree on the restarts of each role that they share", "[coordinator]") {
    Job job({.min_nodes = 3, .max_nodes = 3});
    job.join(running(job, "n1", {kTrainer}));
    job.join(running(job, "n2", {{"server", 1, 5}}));
    CHECK(refusals(job).empty());
    job.join(running(job, "n3", {kTrainer, kServer}));
    CHECK(refusals(job) ==
          std::vector<std::string>{"this job runs with --max-restarts 5 of role server, this node was started with "
                                   "--max-restarts 0: start all nodes with the same options"});
    job.join(running(job, "n3", {{"x", 1, 1}, {"x", 1, 2}}));
    CHECK(refusals(job) ==
          std::vector<std::string>{"role x has --max-restarts 1 and 2 on this node: pass one value for "
                                   "all its programs"});
    job.join(running(job, "n3", {{"", 1, 1}}));
    CHECK(refusals(job) == std::vector<std::string>{"a role needs a name of 1 to 1024 bytes"});
    CHECK(job.state.roles.size() == 2);
    Job one({.min_nodes = 2, .max_nodes = 2});
    one.join(running(one, "n1", {kTrainer}));
    one.join(running(one, "n2", {{"trainer", 1, 3}, kServer}));
    CHECK_THAT(refusals(one).at(0), Contains("--max-restarts 2 of role trainer, this node was started with"));
}

TEST_CASE("a lost node may be replaced if each of its roles has a restart left", "[coordinator]") {
    const auto lost = GENERATE(values<std::vector<Program>>({{kTrainer}, {kServer}, {kTrainer, kServer}}));
    Job job;
    job.join(running(job, "n1", {kTrainer, {"evaluator", 1, 0}}));
    job.join(running(job, "n2", lost));
    job.store_opens();
    job.disconnect("n2");
    job.pass(2s);
    job.stopped("n1");
    if (lost.back() == kServer) {
        CHECK_THAT(job.verdict().reason, Contains("it is not to be restarted (--max-restarts 0 of role server)"));
    } else {
        CHECK_FALSE(job.state.verdict);
        job.join(running(job, "n3", lost));
        CHECK(job.opens(2));
    }
}

TEST_CASE("a job does not wait for another node if a member that has left may not be replaced", "[coordinator]") {
    const Program left = GENERATE(kTrainer, kServer);
    Job job({.min_nodes = 3, .max_nodes = 3});
    for (const char* host : {"n1", "n2"}) job.join(running(job, host, {kTrainer}));
    job.join(running(job, "n3", {left}));
    job.store_opens();
    for (const char* host : {"n1", "n3"}) job.succeeded(host);
    job.leave("n3");
    job.disconnect("n2");
    job.pass(2s);
    if (left == kServer)
        CHECK_THAT(job.verdict().reason, Contains("it is not to be restarted (--max-restarts 0 of role server)"));
    else
        CHECK_FALSE(job.state.verdict);
}

TEST_CASE("a failure that explains the first one spends the restart of its own role", "[coordinator]") {
    Job job = a_node_each();
    FailureReport victim = failure(2, "n2", {ExitStatus::Kind::kExited, 1});
    victim.peer_failed = true;
    job.fail("n2", victim);
    job.fail("n1", failure(0, "n1"));
    job.stopped("n1");
    job.stopped("n2");
    CHECK_FALSE(job.state.verdict);
    CHECK(job.state.roles.at("trainer").spent == 1);
}
