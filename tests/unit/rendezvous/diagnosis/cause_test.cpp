// Which failure is the cause, and which its consequence.
#include "rendezvous/diagnosis/cause.hpp"

#include "tests/catch.hpp"
#include "tests/unit/rendezvous/coordinator/job.hpp"

using namespace ddprun;
using namespace ddprun::protocol;
using namespace ddprun::diagnosis;
using namespace ddprun::coordinator;
using Catch::Contains;

namespace {

constexpr ExitStatus kExit1{ExitStatus::Kind::kExited, 1, false};

FailureReport raised(int rank, std::string host, std::string last_line, std::chrono::milliseconds failing_for = 0ms) {
    FailureReport report = failure(rank, std::move(host), kExit1);
    report.last_lines = {"Traceback (most recent call last):", "  File \"train.py\", line 7, in <module>",
                         std::move(last_line)};
    report.failing_for = failing_for;
    return report;
}

/// Two nodes with two workers each; the given workers fail one after the other.
Verdict verdict_of(const FailureReport& first, const FailureReport& later, Duration after = 100ms) {
    Job job({.slots = 2});
    job.start({"n1", "n2"});
    job.fail(first.host, first);
    job.pass(after);
    job.fail(later.host, later);
    job.stopped("n1");
    job.stopped("n2");
    return job.verdict();
}

const std::string kVictim = "RuntimeError: [pair.cc:534] Connection closed by peer [10.0.0.7]:4711";
const std::string kError = "ValueError: loss is nan";

}  // namespace

TEST_CASE("a worker that reports a lost peer is the victim of another failure", "[coordinator]") {
    const auto text = GENERATE(as<std::string>(), kVictim, "OSError: [Errno 104] Connection reset by peer",
                               "NCCL error: remote process exited or there was a network error");
    CAPTURE(text);
    CHECK(lost_a_peer(raised(0, "n1", text)));
    FailureReport by_error_file = failure(0, "n1", kExit1);
    by_error_file.message = text;
    CHECK(lost_a_peer(by_error_file));
    CHECK_FALSE(lost_a_peer(raised(0, "n1", kError)));
    CHECK_FALSE(lost_a_peer(failure(0, "n1", kExit1)));
    FailureReport by_flight_record = raised(0, "n1", kError);
    by_flight_record.peer_failed = true;
    CHECK(lost_a_peer(by_flight_record));
}

TEST_CASE("a victim's report that came first does not stay the verdict when the failure itself is reported",
          "[coordinator]") {
    const FailureReport victim = raised(0, "n1", kVictim, 20ms);
    SECTION("of the same node") { CHECK(verdict_of(victim, raised(1, "n1", kError)).culprit->rank == Rank{1}); }
    SECTION("of another one") { CHECK(verdict_of(victim, raised(2, "n2", kError)).culprit->rank == Rank{2}); }
    SECTION("a long time later, but it had begun") {
        CHECK(verdict_of(victim, raised(2, "n2", kError, 1500ms), 1500ms).culprit->rank == Rank{2});
    }
    SECTION("a long time later") {
        CHECK(verdict_of(victim, raised(2, "n2", kError), 1500ms).culprit->rank == Rank{0});
    }
    SECTION("the other one is a victim too") {
        CHECK(verdict_of(victim, raised(2, "n2", kVictim)).culprit->rank == Rank{0});
    }
    SECTION("it was the first") { CHECK(verdict_of(raised(2, "n2", kError), victim).culprit->rank == Rank{2}); }
}

TEST_CASE("if the texts do not decide, the failure that began first is the culprit", "[coordinator]") {
    const FailureReport first = raised(0, "n1", "RuntimeError: barrier failed", 5ms);
    CHECK(verdict_of(first, raised(2, "n2", kError, 300ms), 100ms).culprit->rank == Rank{2});
    CHECK(verdict_of(first, raised(2, "n2", kError, 90ms), 100ms).culprit->rank == Rank{0});
    CHECK(verdict_of(first, raised(2, "n2", kError), 100ms).culprit->rank == Rank{0});  // not known when it began
    CHECK(verdict_of(failure(0, "n1"), raised(2, "n2", kError, 300ms)).culprit->rank == Rank{0});  // killed, not failed
}

TEST_CASE("members that are still stopping get the reason when it has changed", "[coordinator]") {
    Job job({.slots = 2});
    job.start({"n1", "n2"});
    job.fail("n1", raised(0, "n1", kVictim));
    CHECK(job.receivers<Abort>() == Hosts{"n1", "n2"});
    job.stopped("n1");
    SECTION("by another failure") {
        FailureReport report = raised(2, "n2", kError);
        report.message = kError;
        job.fail("n2", report);
        CHECK(job.sent<Abort>().at("n2").reason == "rank 2 on n2 exited with code 1: " + kError);
        CHECK(job.receivers<Abort>() == Hosts{"n2"});  // nothing is left to be stopped on n1
    }
    SECTION("by a victim's report") {
        job.fail("n2", raised(3, "n2", kVictim));
        CHECK(job.receivers<Abort>().empty());
    }
}

TEST_CASE("members that are still stopping get the lost node as the reason", "[coordinator]") {
    Job job({.min_nodes = 2, .max_nodes = 3});
    job.start({"n1", "n2", "n3"});
    job.fail("n1", raised(0, "n1", kVictim));
    job.disconnect("n3");
    job.pass(1s);
    CHECK(job.receivers<Abort>() == Hosts{"n1", "n2"});
    CHECK(job.sent<Abort>().at("n1").reason == "node n3 was lost: connection closed");
}

TEST_CASE("a node cannot report the failure of another node's worker", "[coordinator]") {
    Job job({.slots = 2});
    job.start({"n1", "n2"});
    const int rank = GENERATE(0, 1, 4, 1'000'000);
    job.fail("n2", failure(rank, "n2"));
    CHECK(job.actions.empty());
    CHECK_THAT(job.reason, Contains("node n2 reports the failure of rank") && Contains("not its own"));
    CHECK(job.state.phase == Phase::kRunning);
    job.fail("n1", raised(0, "n1", kVictim));
    job.fail("n2", failure(rank, "n2"));
    job.stopped("n1");
    job.stopped("n2");
    CHECK(job.verdict().culprit->rank == Rank{0});
    CHECK(job.verdict().exit_code == 1);
}
