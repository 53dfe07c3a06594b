// Stable slots: which node rank each member of a group gets.
#include "tests/catch.hpp"
#include "tests/unit/rendezvous/coordinator/job.hpp"

using namespace ddprun;
using namespace ddprun::protocol;
using namespace ddprun::coordinator;

namespace {

std::map<std::string, int> ranks(const Job& job) {
    std::map<std::string, int> result;
    for (const auto& [host, assignment] : job.sent<Assignment>()) result[host] = number(assignment.node_rank);
    return result;
}

}  // namespace

TEST_CASE("a spare takes the rank of the node that it replaces, and the others keep theirs", "[coordinator]") {
    Job job({.min_nodes = 4, .max_nodes = 4, .max_restarts = 1});
    job.start({"n0", "n1", "n2", "n3"});
    job.join("a-spare");
    job.lose("n0");
    CHECK(ranks(job) == std::map<std::string, int>{{"a-spare", 0}, {"n1", 1}, {"n2", 2}, {"n3", 3}});
}

TEST_CASE("a host's new ddprun gets its rank, before a spare", "[coordinator]") {
    Job job({.min_nodes = 2, .max_nodes = 3, .max_restarts = 1});
    job.start({"n0", "n1", "n2"});
    job.join("a-spare");
    job.disconnect("n1");
    job.pass(900ms);
    job.pass(200ms);
    job.join_as("the new ddprun of n1", "n1");
    job.restart();
    CHECK(ranks(job) == std::map<std::string, int>{{"n0", 0}, {"the new ddprun of n1", 1}, {"n2", 2}});
}

TEST_CASE("when the world shrinks, only members whose ranks are too high change them", "[coordinator]") {
    Job job({.min_nodes = 1, .max_nodes = 5});
    job.start({"n0", "n1", "n2", "n3", "n4"});
    job.lose("n1");
    CHECK(ranks(job) == std::map<std::string, int>{{"n0", 0}, {"n4", 1}, {"n2", 2}, {"n3", 3}});
    SECTION("and a host that comes back gets its old rank if that is free") {
        job.lose("n3");
        CHECK(ranks(job) == std::map<std::string, int>{{"n0", 0}, {"n4", 1}, {"n2", 2}});
        job.join_as("the new ddprun of n1", "n1");
        job.join_as("the new ddprun of n3", "n3");
        job.restart();
        CHECK(ranks(job).at("the new ddprun of n3") == 3);
        CHECK(ranks(job).at("the new ddprun of n1") == 4);  // its own has been taken
    }
}

TEST_CASE("a free rank goes to the node that requested it", "[coordinator]") {
    Job job({.min_nodes = 3, .max_nodes = 3, .max_restarts = 1});
    job.start({"n0", "n1", "n2"});
    job.disconnect("n1");
    job.disconnect("n2");
    job.pass(1s);
    Join second = job.greeting("b");
    second.node_rank = 1;
    job.join("a");
    job.join(second);
    job.all_stop();
    job.store_opens();
    CHECK(ranks(job) == std::map<std::string, int>{{"n0", 0}, {"b", 1}, {"a", 2}});
}

TEST_CASE("a node that was cut off and comes back before the next group keeps its rank", "[coordinator]") {
    Job job({.min_nodes = 3, .max_nodes = 3, .max_restarts = 1});
    job.start({"n0", "n1", "n2"});
    job.disconnect("n0");
    job.pass(1s);
    job.join("n0");
    job.say("n0", GroupStopped{Generation{1}});
    job.all_stop();
    job.store_opens();
    CHECK(ranks(job) == std::map<std::string, int>{{"n0", 0}, {"n1", 1}, {"n2", 2}});
}

TEST_CASE("a host does not claim a rank that another node has now", "[coordinator]") {
    Job job({.min_nodes = 3, .max_nodes = 3, .max_restarts = 3});
    job.start({"n0", "n1", "n2"});
    job.join("spare");
    job.lose("n1");  // the spare has rank 1 now
    job.join_as("n1, again", "n1");
    job.disconnect("n2");
    job.pass(1s);
    job.join_as("n2, again", "n2");
    job.restart();
    CHECK(ranks(job) == std::map<std::string, int>{{"n0", 0}, {"spare", 1}, {"n2, again", 2}});
}
