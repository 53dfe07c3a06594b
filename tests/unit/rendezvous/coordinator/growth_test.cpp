// --scale-up: when a running group is restarted with more nodes.
#include "tests/catch.hpp"
#include "tests/unit/rendezvous/coordinator/job.hpp"

using namespace ddprun;
using namespace ddprun::protocol;
using namespace ddprun::coordinator;
using Catch::Contains;

namespace {

/// A job with room for more that runs with n1 and n2.
Job small(ScaleUp scale_up = ScaleUp::kImmediate, int max_nodes = 64) {
    Job job({.min_nodes = 2, .max_nodes = max_nodes, .max_restarts = 3, .scale_up = scale_up});
    job.join("n1");
    job.join("n2");
    job.pass(30s);
    job.store_opens();
    REQUIRE(job.state.phase == Phase::kRunning);
    return job;
}

std::size_t size_of_group(const Job& job) { return job.state.group.members.size(); }

/// Ends the group that is being stopped, and starts the next one.
void restart(Job& job) {
    REQUIRE(job.state.phase == Phase::kStopping);
    job.all_stop();
    REQUIRE(job.state.phase == Phase::kOpening);
    job.store_opens();
}

}  // namespace

TEST_CASE("a running group grows when no node has joined for 5 s", "[coordinator]") {
    Job job = small();
    job.join("n3");
    CHECK_THAT(job.sent<Waiting>().at("n3").reason, Contains("it restarts with more when no further ones join"));
    job.pass(4s);
    job.join("n4");
    job.pass(4900ms);
    CHECK(job.state.phase == Phase::kRunning);
    job.pass(200ms);
    CHECK(job.sent<Abort>().at("n1").reason == "nodes n3 and n4 joined");
    restart(job);
    CHECK(size_of_group(job) == 4);
}

TEST_CASE("a group that has room for no more grows at once", "[coordinator]") {
    Job job = small(ScaleUp::kImmediate, 3);
    job.join("n3");
    CHECK(job.sent<Abort>().at("n1").reason == "node n3 joined");
}

TEST_CASE("62 nodes that come one a second cause three groups at most", "[coordinator]") {
    Job job = small();
    int groups = 1;
    for (int i = 3; i < 200; ++i) {
        if (i <= 64) job.join("n" + std::to_string(i));
        job.pass(1s);
        if (job.state.phase != Phase::kStopping) continue;
        restart(job);
        ++groups;
    }
    CHECK(groups == 3);
    CHECK(size_of_group(job) == 64);
}

TEST_CASE("a group that has grown does not grow again for a time that doubles", "[coordinator]") {
    Job job = small();
    std::vector<std::chrono::seconds> lasted;
    for (int i = 3; i < 8; ++i) {
        job.join("n" + std::to_string(i));
        const TimePoint since = job.now;
        while (job.state.phase == Phase::kRunning) job.pass(1s);
        lasted.push_back(std::chrono::duration_cast<std::chrono::seconds>(job.now - since));
        restart(job);
    }
    CHECK(lasted == std::vector<std::chrono::seconds>{5s, 60s, 120s, 240s, 480s});
    SECTION("until one has run for an hour") {
        job.pass(1h);
        if (GENERATE(false, true)) {
            job.lose("n2");
            job.join_as("n2 again", "n2");
        } else {
            job.join("n9");
        }
        job.pass(6s);
        restart(job);
        job.join("n10");
        CHECK_THAT(job.sent<Waiting>().at("n10").reason, Contains("it restarts with more when it has run for 60 s"));
    }
}

TEST_CASE("with --scale-up at-restart new nodes wait for a restart", "[coordinator]") {
    Job job = small(ScaleUp::kAtRestart);
    job.join("n3");
    CHECK_THAT(job.sent<Waiting>().at("n3").reason, Contains("more take part after the next restart"));
    job.pass(10min);
    REQUIRE(job.state.phase == Phase::kRunning);
    job.fail("n1", failure(0, "n1"));
    restart(job);
    CHECK(size_of_group(job) == 3);
}

TEST_CASE("with --scale-up never the world stays as large as it was at first", "[coordinator]") {
    Job job = small(ScaleUp::kNever);
    job.join("n3");
    job.pass(10min);
    REQUIRE(job.state.phase == Phase::kRunning);
    job.fail("n1", failure(0, "n1"));
    restart(job);
    CHECK(job.receivers<Assignment>() == Hosts{"n1", "n2"});
    job.lose("n1");
    CHECK(job.receivers<Assignment>() == Hosts{"n2", "n3"});
}
