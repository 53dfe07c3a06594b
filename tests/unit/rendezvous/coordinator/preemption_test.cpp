// A notice of preemption: all workers get it, agree on the step at which they stop, and end by themselves.
#include <fmt/format.h>

#include "rendezvous/coordinator/preemption.hpp"
#include "tests/catch.hpp"
#include "tests/unit/rendezvous/coordinator/job.hpp"

using namespace ddprun;
using namespace ddprun::protocol;
using namespace ddprun::coordinator;
using Catch::Contains;

namespace {

PreemptionNotice by_signal() { return {.reason = "SIGUSR1", .by_signal = true}; }
PreemptionNotice by_time_limit() { return {.reason = "the time limit"}; }

Ordered order(std::optional<std::chrono::milliseconds> time_left = {}) {
    return {{.protocol = kProtocolVersion, .command = Order::Command::kPreempt, .time_left = time_left}};
}

void answer(Job& job, const std::string& host, std::uint64_t calls) {
    job.say(host, StepsTaken{job.state.generation, calls});
}

void stop(Job& job, const std::string& host) { job.say(host, GroupSucceeded{job.state.generation, true}); }

std::string reply(const Job& job) {
    const auto replies = job.asked<Reply>();
    return replies.size() == 1 ? replies.front().answer.text : "no reply";
}

}  // namespace

TEST_CASE("after a notice all ranks stop in the call that the foremost one makes next", "[coordinator]") {
    Job job = three();
    job.say("n2", by_signal());
    CHECK(job.receivers<Preempt>() == Hosts{"n1", "n2", "n3"});
    CHECK(job.sent<Preempt>().at("n3") == Preempt{Generation{1}, "node n2 got SIGUSR1", true, 0, {}});
    job.say("n1", by_signal());  // a scheduler signals every node
    CHECK(job.receivers<Preempt>().empty());
    answer(job, "n1", 17);
    answer(job, "n3", 18);
    CHECK(job.receivers<Preempt>().empty());
    answer(job, "n2", 17);
    CHECK(job.receivers<Preempt>() == Hosts{"n1", "n2", "n3"});
    CHECK(job.sent<Preempt>().at("n1").stop_at == 19);
    answer(job, "n2", 40);  // repeated after a reconnect
    CHECK(job.receivers<Preempt>().empty());

    stop(job, "n1");
    stop(job, "n2");
    SECTION("and the job ends as preempted") {
        stop(job, "n3");
        CHECK(job.closes(1));
        CHECK(job.verdict().outcome == Outcome::kPreempted);
        CHECK(job.verdict().exit_code == 75);
        CHECK(job.verdict().reason ==
              "preempted: node n2 got SIGUSR1; every worker has stopped by itself, and the job may be "
              "started again");
        CHECK(job.receivers<Finished>() == Hosts{"n1", "n2", "n3"});
    }
    SECTION("also if some workers had just succeeded") {
        job.succeeded("n3");
        CHECK(job.verdict().exit_code == 75);
    }
}

TEST_CASE("a preempted job whose workers all exit with 0 has succeeded", "[coordinator]") {
    Job job;
    job.start({"n1", "n2"});
    job.say("n1", by_signal());
    job.succeeded("n1");
    job.succeeded("n2");
    CHECK(job.verdict().outcome == Outcome::kSucceeded);
}

TEST_CASE("the step of a preemption waits for the answers of all members with workers, and for no others",
          "[coordinator]") {
    Job job = three();
    job.join("n4");
    job.say("n4", by_signal());  // a spare
    CHECK(job.receivers<Preempt>() == Hosts{"n1", "n2", "n3"});
    answer(job, "n1", 4);
    job.say("n4", StepsTaken{Generation{1}, 99});
    job.say("n1", StepsTaken{Generation{7}, 99});
    CHECK(job.receivers<Preempt>().empty());
    SECTION("one has succeeded: the others go on to the end, in which it would be missing") {
        answer(job, "n2", 3);
        job.succeeded("n3");
        CHECK(job.sent<Preempt>().at("n2").stop_at > 1'000'000'000'000);
    }
    SECTION("one reconnects, and gets the notice again") {
        answer(job, "n2", 3);
        job.disconnect("n3");
        job.join("n3");
        CHECK(job.sent<Preempt>().at("n3").stop_at == 0);
        answer(job, "n3", 9);
        CHECK(job.sent<Preempt>().at("n1").stop_at == 10);
        job.disconnect("n2");
        job.join("n2");
        CHECK(job.sent<Preempt>().at("n2").stop_at == 10);
    }
}

TEST_CASE("workers that start after a notice have it from the beginning", "[coordinator]") {
    Job job({.max_restarts = 1});
    job.join("n1");
    job.say("n1", by_signal());
    CHECK_FALSE(job.ends_job);
    job.join("n2");
    job.store_opens();
    CHECK(job.receivers<Assignment>() == Hosts{"n1", "n2"});
    CHECK(job.receivers<Preempt>() == Hosts{"n1", "n2"});
    answer(job, "n1", 0);
    answer(job, "n2", 0);
    CHECK(job.sent<Preempt>().at("n1").stop_at == 1);
    job.fail("n1", failure(0, "n1"));
    job.restart();
    REQUIRE(job.state.phase == Phase::kRunning);
    CHECK(job.sent<Preempt>().at("n2") == Preempt{Generation{2}, "node n1 got SIGUSR1", true, 0, {}});
}

TEST_CASE("a job that would start workers after the time limit's notice ends instead", "[coordinator]") {
    Job job({.max_restarts = 3});
    SECTION("while it waits for nodes") {
        job.join("n1");
        job.say("n1", by_time_limit());
        CHECK(job.verdict().reason == "preempted before a worker ran: the time limit");
        CHECK(job.verdict().exit_code == 75);
    }
    SECTION("while the store of its first group is opened, it starts") {
        job.join("n1");
        job.join("n2");
        job.say("n1", by_time_limit());
        CHECK_FALSE(job.ends_job);
        job.store_opens();
        CHECK(job.receivers<Preempt>() == Hosts{"n1", "n2"});
    }
    SECTION("after a failure") {
        job.start({"n1", "n2"});
        job.say("n2", by_time_limit());
        job.fail("n1", failure(0, "n1"));
        job.stopped("n1");
        job.stopped("n2");
        CHECK(job.verdict().outcome == Outcome::kPreempted);
        CHECK_THAT(job.verdict().reason, Contains("before the next start of the workers: rank 0 on n1 was killed"));
        CHECK(job.verdict().restarts == 0);
    }
    SECTION("after the loss of a node") {
        job.start({"n1", "n2"});
        job.say("n2", by_time_limit());
        job.disconnect("n1");
        job.pass(2s);
        job.stopped("n2");
        CHECK(job.verdict().outcome == Outcome::kPreempted);
        CHECK_THAT(job.verdict().reason, Contains("node n1 was lost"));
    }
}

TEST_CASE("a failure that may not be restarted ends a preempted job as a failure", "[coordinator]") {
    Job job;
    job.start({"n1", "n2"});
    job.say("n2", by_time_limit());
    job.fail("n1", failure(0, "n1"));
    job.stopped("n1");
    job.stopped("n2");
    CHECK(job.verdict().outcome == Outcome::kWorkerFailed);
    CHECK(job.verdict().exit_code == 137);
}

TEST_CASE("an operator orders a preemption", "[coordinator]") {
    Job job = three();
    SECTION("of workers that run") {
        job.feed(order());
        CHECK(reply(job) == "3 nodes get notice to stop in one step");
        CHECK(job.receivers<Preempt>() == Hosts{"n1", "n2", "n3"});
        CHECK(job.sent<Preempt>().at("n1") == Preempt{Generation{1}, "ddpctl preempt", false, 0, {}});
        job.feed(order());
        CHECK(reply(job) == "3 nodes have notice already, and stop in one step");
    }
    SECTION("after a signal: it is meant, and nothing is started any more") {
        job.say("n1", by_signal());
        job.feed(order(9000ms));
        CHECK(reply(job) == "3 nodes get notice to stop in one step");
        CHECK(job.sent<Preempt>().at("n3") == Preempt{Generation{1}, "ddpctl preempt", false, 0, 9000ms});
        CHECK(ends_instead_of_starting(job.state));
    }
    SECTION("of workers that are about to start, or to stop") {
        Job other({.max_restarts = 1});
        other.feed(order());
        CHECK(reply(other) == "no node has joined yet: the job ends when one does");
        other.join("n1");
        CHECK(other.verdict().exit_code == 75);
        Job opening;
        opening.join("n1");
        opening.join("n2");
        opening.feed(order());
        CHECK(reply(opening) == "workers are about to start: they stop in their first step");
        job.fail("n1", failure(0, "n1"));
        job.feed(order());
        CHECK(reply(job) == "the workers are being stopped already: the job ends then");
    }
    SECTION("and a node that saves is not drained") {
        job.feed(order());
        job.feed(Ordered{{kProtocolVersion, Order::Command::kDrain, "n1"}});
        CHECK(job.asked<Reply>().front().answer.refused);
    }
    SECTION("of a job that waits") {
        Job waiting;
        waiting.join("n1");
        waiting.feed(order());
        CHECK(reply(waiting) == "the job had no workers: it has ended");
        CHECK(waiting.verdict().exit_code == 75);
        waiting.feed(order());
        CHECK(waiting.asked<Reply>().front().answer.refused);
    }
}

TEST_CASE("ranks that have not ended at the deadline of a preemption are stopped and named", "[coordinator]") {
    Job job = three();
    job.feed(order(2000ms));
    CHECK(job.sent<Preempt>().at("n1").time_left == 2000ms);
    job.pass(1s);
    job.say("n1", WorkerFinished{Generation{1}, Rank{1}});
    stop(job, "n2");  // ranks 2 and 3
    job.pass(900ms);
    CHECK(job.receivers<Abort>().empty());
    job.pass(200ms);
    CHECK(asks_why_overdue(job.state));
    CHECK(job.receivers<Abort>().empty());
    SECTION("with the diagnosis") {
        job.feed(Diagnosed{Generation{1}, {.text = "rank 4 kept rank 5 waiting"}});
        job.pass(100ms);
        CHECK(job.receivers<Abort>() == Hosts{"n1", "n3"});
        job.stopped("n1");
        job.stopped("n3");
        CHECK(job.verdict().diagnosis == "rank 4 kept rank 5 waiting");
    }
    SECTION("without one, if it takes too long") {
        job.pass(2s);
        CHECK(job.receivers<Abort>() == Hosts{"n1", "n3"});
        job.stopped("n1");
        job.stopped("n3");
        CHECK(job.verdict().diagnosis == "");
    }
    CHECK(job.verdict().outcome == Outcome::kPreempted);
    CHECK(job.verdict().exit_code == 75);
    CHECK(job.verdict().reason ==
          "preempted: ddpctl preempt; ranks 0, 4-5 had not ended at the deadline, and were stopped");
}

TEST_CASE("of several deadlines of a preemption the earliest counts", "[coordinator]") {
    Job job;
    job.start({"n1", "n2"});
    job.say("n1", by_signal());
    job.feed(order(5000ms));
    job.feed(order(9000ms));
    job.feed(order(1000ms));
    job.pass(900ms);
    CHECK_FALSE(asks_why_overdue(job.state));
    job.pass(200ms);
    CHECK(asks_why_overdue(job.state));
}

TEST_CASE("a preempted group is not restarted for the sake of more nodes", "[coordinator]") {
    Job job({.min_nodes = 1, .max_nodes = 2});
    job.join("n1");
    job.pass(31s);
    job.store_opens();
    REQUIRE(job.state.phase == Phase::kRunning);
    job.say("n1", by_signal());
    job.join("n2");
    job.pass(60s);
    CHECK(job.state.phase == Phase::kRunning);
    job.pass(10min);
    CHECK(job.receivers<Abort>() == Hosts{"n1"});  // the signal was a request for a checkpoint
}

TEST_CASE("a node cannot say that it was preempted without a notice", "[coordinator]") {
    Job job;
    job.start({"n1", "n2"});
    stop(job, "n1");
    stop(job, "n2");
    CHECK(job.verdict().outcome == Outcome::kSucceeded);
}
