// Workers that fail: which one is the culprit, and whether the group is restarted.
#include <fmt/format.h>
#include "common/exit_codes.hpp"

#include "rendezvous/coordinator/verdicts.hpp"
#include "tests/catch.hpp"
#include "tests/unit/rendezvous/coordinator/job.hpp"

using namespace ddprun;
using namespace ddprun::protocol;
using namespace ddprun::coordinator;
using Catch::Contains;

namespace {

Diagnosis dead_rank(int rank) {
    return {.text = "DEAD rank 3 (node n2): in #7", .dead = Rank{rank}, .detail = "in #7", .names_activity = true};
}

}  // namespace

TEST_CASE("a failure without a restart left stops all nodes and names rank, host and signal", "[coordinator]") {
    Job job({.slots = 2});
    job.start({"n1", "n2"});
    job.fail("n2", failure(3, "n2"));
    CHECK(job.receivers<Abort>() == Hosts{"n1", "n2"});
    CHECK(job.sent<Abort>().at("n1") == Abort{Generation{1}, "rank 3 on n2 was killed by SIGKILL", 0, true});
    job.stopped("n2");
    CHECK_FALSE(job.ends_job);  // n1 still has processes
    CHECK(job.asked<CloseStore>().empty());
    job.stopped("n1");
    CHECK(job.closes(1));
    CHECK(job.verdict().outcome == Outcome::kWorkerFailed);
    CHECK(job.verdict().exit_code == 137);
    CHECK(job.verdict().reason == "rank 3 on n2 was killed by SIGKILL");
    CHECK(job.verdict().culprit == failure(3, "n2"));
    CHECK(job.receivers<Finished>() == Hosts{"n1", "n2"});
    CHECK(job.state.phase == Phase::kFinished);
}

TEST_CASE("a failure by a deadline is concluded with its diagnosis, and its verdict has the line", "[coordinator]") {
    Job job;
    job.start({"n1", "n2"});
    job.feed(DiagnosisPending{Generation{1}});
    job.fail("n1", failure(0, "n1"));
    job.stopped("n1");
    job.stopped("n2");
    CHECK_FALSE(job.ends_job);
    SECTION("it is diagnosed") {
        job.feed(Diagnosed{Generation{1}, {"LAGGING rank 1"}});
        CHECK(job.verdict().diagnosis == "LAGGING rank 1");
    }
    SECTION("it never is") {
        job.pass(1900ms);
        CHECK_FALSE(job.ends_job);
        job.pass(100ms);
        CHECK(job.verdict().diagnosis == "");
    }
    CHECK(job.verdict().reason == "rank 0 on n1 was killed by SIGKILL");
}

TEST_CASE("the first victim of another rank is distinguished from the culprit, and the verdict has the hint",
          "[coordinator]") {
    Job job;
    job.start({"n1", "n2"});
    job.feed(DiagnosisPending{Generation{1}});
    job.fail("n1", failure(0, "n1"));
    const auto culprits = GENERATE(values<std::vector<int>>({{1}, {0, 1}, {}}));
    job.feed(Diagnosed{Generation{1}, {.text = "LAGGING rank 1", .hint = "Look at it", .culprits = culprits}});
    job.stopped("n1");
    job.stopped("n2");
    CHECK(job.verdict().hint == "Look at it");
    CHECK(job.verdict().first_victim == (culprits == std::vector<int>{1}));
}

TEST_CASE("a diagnosis is the reason of a restart, and not valid for a failure long after, or in another group",
          "[coordinator]") {
    Job job({.max_restarts = 1});
    job.start({"n1", "n2"});
    job.feed(DiagnosisPending{Generation{1}});
    job.feed(Diagnosed{Generation{1}, {"LAGGING rank 1"}});
    const bool long_after = GENERATE(true, false);
    if (long_after) job.pass(31s);
    job.fail("n1", failure(0, "n1"));
    job.stopped("n1");
    job.stopped("n2");
    job.store_opens();
    const std::string reason = job.sent<Assignment>().at("n2").reason;
    CHECK((reason.find("; LAGGING rank 1") == std::string::npos) == long_after);
    job.feed(Diagnosed{Generation{1}, {"LAGGING rank 1"}});
    job.fail("n1", failure(0, "n1"));
    job.stopped("n1");
    job.stopped("n2");
    CHECK(job.verdict().diagnosis == "");
}

TEST_CASE("the operation of a dead worker is in the verdict or, without naming it again, in the reason of the restart",
          "[coordinator]") {
    Job job({.max_restarts = 1, .slots = 2});
    job.start({"n1", "n2"});
    job.fail("n2", failure(3, "n2"));
    job.feed(DiagnosisPending{Generation{1}});
    const int dead = GENERATE(3, 2);
    job.feed(Diagnosed{Generation{1}, dead_rank(dead)});
    job.stopped("n1");
    job.stopped("n2");
    job.store_opens();
    const bool of_another = dead != 3;
    CHECK(job.sent<Assignment>().at("n2").reason ==
          (of_another ? "rank 3 on n2 was killed by SIGKILL" : "rank 3 on n2 was killed by SIGKILL; in #7"));
    job.fail("n2", failure(3, "n2"));
    job.feed(DiagnosisPending{Generation{2}});
    job.feed(Diagnosed{Generation{2}, dead_rank(dead)});
    job.feed(Diagnosed{Generation{2}, {}});  // about a deadline, without a result
    job.stopped("n1");
    job.stopped("n2");
    CHECK(job.verdict().diagnosis == (of_another ? "" : "DEAD rank 3 (node n2): in #7"));
    CHECK(job.verdict().names_activity == !of_another);
}

TEST_CASE("a failure with a restart left restarts all nodes, with the same ranks and without a last call",
          "[coordinator]") {
    Job job({.min_nodes = 2, .max_nodes = 3, .max_restarts = 1});
    job.join("n1");
    job.join("n2");
    job.pass(30s);
    job.store_opens(4001);
    job.fail("n1", failure(0, "n1"));
    const std::string why = job.sent<Abort>().at("n2").reason;
    job.stopped("n1");
    job.stopped("n2");
    REQUIRE(job.actions.size() == 2);
    CHECK(std::get<CloseStore>(job.actions.at(0)) == CloseStore{Generation{1}});  // before the next one is opened
    CHECK(std::get<OpenStore>(job.actions.at(1)) == OpenStore{Generation{2}});
    CHECK_THAT(job.reason, Contains("restart 1 of 1"));
    job.store_opens(4002);
    CHECK(job.sent<Assignment>().at("n1") ==
          Assignment{Generation{2}, NodeRank{0}, 2, 0, 2, "", 4002, 1, 1, why, Restart{1, 1}, {{0, 2}}});
    CHECK(job.sent<Assignment>().at("n2") ==
          Assignment{Generation{2}, NodeRank{1}, 2, 1, 2, "", 4002, 1, 1, why, Restart{1, 1}, {{1, 2}}});

    job.fail("n2", failure(1, "n2", {ExitStatus::Kind::kExited, 3, false}));
    job.stopped("n1");
    job.stopped("n2");
    CHECK(job.verdict().exit_code == 3);
    CHECK(job.verdict().restarts == 1);
    CHECK_THAT(job.verdict().reason, Contains("exited with code 3") && Contains("--max-restarts 1"));
}

TEST_CASE("the first failure received is the culprit and one failure spends one restart", "[coordinator]") {
    Job job({.max_restarts = 1});
    job.start({"n1", "n2"});
    job.fail("n2", failure(1, "n2"));
    job.fail("n1", failure(0, "n1"));
    job.fail("n2", failure(1, "n2"));
    CHECK(job.actions.empty());
    job.stopped("n1");
    job.stopped("n2");
    CHECK(restarts_spent(job.state) == 1);
    FailureReport culprit = failure(1, "n2");
    culprit.role = "default";
    CHECK(job.state.cause.failure == culprit);
}

TEST_CASE("a killed worker is the culprit although a peer that failed because of it was reported first",
          "[coordinator]") {
    Job job;
    job.start({"n1", "n2"});
    const FailureReport consequence = failure(1, "n2", {ExitStatus::Kind::kExited, 1, false});
    job.fail("n2", consequence);
    const bool in_time = GENERATE(true, false);
    job.pass(in_time ? 900ms : 1200ms);
    job.fail("n1", failure(0, "n1"));
    job.stopped("n2");
    job.stopped("n1");
    CHECK(job.verdict().culprit == (in_time ? failure(0, "n1") : consequence));
    CHECK(job.verdict().exit_code == (in_time ? 137 : 1));
}

TEST_CASE("a peer that gives up is never the culprit of a death before it", "[coordinator]") {
    Job job;
    job.start({"n1", "n2"});
    job.fail("n2", failure(1, "n2"));
    const auto later = GENERATE(ExitStatus{ExitStatus::Kind::kExited, 1, false},
                                ExitStatus{ExitStatus::Kind::kSignaled, SIGABRT, true},
                                ExitStatus{ExitStatus::Kind::kSignaled, SIGSEGV, true});
    job.fail("n1", failure(0, "n1", later));
    job.stopped("n2");
    job.stopped("n1");
    CHECK(job.verdict().culprit == failure(1, "n2"));
}

TEST_CASE("a failure report with code 0 never makes a success", "[coordinator]") {
    Job job({.min_nodes = 1, .max_nodes = 1});
    job.start({"n1"});
    job.fail("n1", failure(0, "n1", {}));
    job.stopped("n1");
    CHECK(job.verdict().outcome == Outcome::kWorkerFailed);
    CHECK(job.verdict().exit_code == 1);
}

TEST_CASE("the first line of a failure's message is part of the reason", "[coordinator]") {
    Job job({.min_nodes = 1, .max_nodes = 1});
    job.start({"n1"});
    FailureReport report = failure(0, "n1", {ExitStatus::Kind::kExited, 127, false});
    report.message = "no such program: trian\nmore";
    job.fail("n1", report);
    job.stopped("n1");
    CHECK(job.verdict().reason == "rank 0 on n1 could not be started: no such program: trian");
    CHECK_FALSE(job.verdict().names_message);  // not all of it
    CHECK(job.verdict().exit_code == 127);
}

TEST_CASE("a worker that its node could not start is an infrastructure failure", "[coordinator]") {
    const int code = GENERATE(69, 70);
    Job job;
    job.start({"n1", "n2"});
    FailureReport report = failure(1, "n2", {ExitStatus::Kind::kExited, code, false});
    report.message = "cannot fork: Resource temporarily unavailable";
    const bool ran = GENERATE(false, true);  // a program may use these numbers for itself
    report.pid = ran ? 4711 : 0;
    job.fail("n2", report);
    job.stopped("n1");
    job.stopped("n2");
    CHECK(job.verdict().exit_code == code);
    CHECK(job.verdict().outcome == (ran ? Outcome::kWorkerFailed : Outcome::kInfrastructure));
    CHECK(job.verdict().culprit == report);
    CHECK(job.verdict().names_message);
    CHECK_THAT(job.verdict().reason,
               Contains(ran ? "rank 1 on n2 exited" : "the agent on n2 could not start rank 1: cannot fork"));
}

TEST_CASE("restarts pause longer and longer while workers fail soon after each start", "[coordinator]") {
    Job job({.min_nodes = 1, .max_nodes = 1, .max_restarts = 20});
    job.start({"n1"});
    const auto pause_after_failure = [&](Duration runs) {
        job.pass(runs);
        job.fail("n1", failure(0, "n1"));
        job.stopped("n1");
        const TimePoint failed = job.now;
        if (job.asked<OpenStore>().empty()) {
            CHECK_THAT(job.state.explanation.message.reason + job.reason, !Contains("giving up"));
            while (job.asked<OpenStore>().empty() && job.now < failed + 20s) job.pass(kTickInterval);
        }
        job.store_opens();
        return std::chrono::duration_cast<std::chrono::milliseconds>(job.now - failed);
    };
    CHECK(pause_after_failure(0s) == 0ms);  // a first failure may be an accident
    CHECK(pause_after_failure(0s) == 100ms);
    CHECK(pause_after_failure(9s) == 200ms);
    CHECK(pause_after_failure(0s) == 400ms);
    CHECK(pause_after_failure(10s) == 0ms);  // it has run for a while
    CHECK(pause_after_failure(0s) == 0ms);
    for (int i = 0; i < 8; ++i) (void)pause_after_failure(0s);
    CHECK(pause_after_failure(0s) == 10s);
}

TEST_CASE(
    "a failure soon after the start is an early one, although the daemon itself pauses before the group has stopped",
    "[coordinator]") {
    Job job({.min_nodes = 1, .max_nodes = 1, .max_restarts = 5});
    job.start({"n1"});
    for (const int failures : {1, 2}) {
        job.fail("n1", failure(0, "n1"));
        job.now += 12s;
        job.stopped("n1");
        CHECK(job.state.early_ends == failures);
        job.store_opens();
    }
}

TEST_CASE("the line about a pause between restarts has its length", "[coordinator]") {
    Job job({.min_nodes = 1, .max_nodes = 1, .max_restarts = 20});
    job.start({"n1"});
    for (int i = 0; i < 6; ++i) {
        job.fail("n1", failure(0, "n1"));
        job.stopped("n1");
        if (i == 5) break;
        while (job.asked<OpenStore>().empty()) job.pass(kTickInterval);
        job.store_opens();
    }
    job.pass(kTickInterval);
    CHECK_THAT(job.state.explanation.message.reason,
               Contains("(rank 0 on n1 was killed by SIGKILL); a pause of 1.6 s before the next start"));
}

TEST_CASE("a worker that exits with 93 ends the job without a restart", "[coordinator]") {
    constexpr ExitStatus kUseless{ExitStatus::Kind::kExited, exit_code::kDoNotRequeue, false};
    Job job({.max_restarts = 3, .slots = 2});
    job.start({"n1", "n2"});
    FailureReport useless = failure(1, "n1", kUseless);
    useless.pid = 4711;
    SECTION("it fails first") { job.fail("n1", useless); }
    SECTION("a crash elsewhere is reported first") {
        job.fail("n2", failure(3, "n2"));
        job.fail("n1", useless);
    }
    SECTION("a crash elsewhere is reported later") {
        job.fail("n1", useless);
        job.fail("n2", failure(3, "n2"));
    }
    SECTION("the loss of a node is noticed first") {
        job.disconnect("n2");
        job.pass(1500ms);
        job.fail("n1", useless);
    }
    SECTION("its node is lost after that") {
        job.fail("n1", useless);
        job.disconnect("n2");
        job.pass(1500ms);
    }
    job.stopped("n1");
    job.stopped("n2");
    REQUIRE(job.state.verdict);
    const Verdict& verdict = *job.state.verdict;
    CHECK(verdict.outcome == Outcome::kWorkerFailed);
    CHECK(verdict.exit_code == 93);
    CHECK(verdict.reason == "rank 1 on n1 exited with code 93; code 93 means that another attempt is useless");
    CHECK(verdict.restarts == 0);
}

TEST_CASE("a worker that exits with 93 is the culprit, whichever rank the diagnosis names", "[coordinator]") {
    Job job;
    job.start({"n1", "n2"});
    job.feed(DiagnosisPending{Generation{1}});
    FailureReport useless = failure(0, "n1", {ExitStatus::Kind::kExited, exit_code::kDoNotRequeue, false});
    useless.pid = 4711;
    job.fail("n1", useless);
    job.feed(Diagnosed{Generation{1}, {.text = "LAGGING rank 1", .culprits = {1}}});
    job.stopped("n1");
    job.stopped("n2");
    CHECK(job.verdict().exit_code == 93);
    CHECK_FALSE(job.verdict().first_victim);
}

TEST_CASE("code 93 of a worker that could not be started forbids nothing", "[coordinator]") {
    Job job({.min_nodes = 1, .max_nodes = 1, .max_restarts = 1});
    job.start({"n1"});
    job.fail("n1", failure(0, "n1", {ExitStatus::Kind::kExited, exit_code::kDoNotRequeue, false}));
    job.stopped("n1");
    CHECK_FALSE(job.ends_job);
}

TEST_CASE("a verdict lists the other ranks that failed by themselves, victims apart", "[coordinator]") {
    constexpr ExitStatus kExit1{ExitStatus::Kind::kExited, 1, false};
    Job job({.max_restarts = 1, .slots = 64});
    job.start({"n1", "n2"});
    job.fail("n1", failure(9, "n1"));  // of a group that is restarted
    job.stopped("n1");
    job.stopped("n2");
    job.store_opens();
    const auto fail = [&](int rank, const std::string& host, int pid, bool peer_failed = false) {
        FailureReport report = failure(rank, host, kExit1);
        report.pid = pid;
        report.peer_failed = peer_failed;
        job.fail(host, report);
    };
    for (int rank = 0; rank < 63; ++rank) fail(rank, "n1", 4711);
    fail(64, "n2", 4711, true);
    fail(90, "n2", 4711);
    fail(91, "n2", 0);  // it was not started
    job.stopped("n1");
    job.stopped("n2");
    CHECK(number(job.verdict().culprit->rank) == 0);
    CHECK(job.verdict().also_failed ==
          std::vector<FailedRanks>{{{{1, 62}, {90, 1}}, kExit1}, {{{64, 1}}, kExit1, OomKill::kUnknown, true}});
}

TEST_CASE("the list of the ranks that failed stays within the limits of a message", "[coordinator]") {
    std::map<Rank, FailedWorker> failed;
    for (int rank = 0; rank < 2000; rank += 2) failed[Rank{rank}] = {{ExitStatus::Kind::kExited, 1}};
    for (int rank = 2000; rank < 2100; ++rank) failed[Rank{rank}] = {{ExitStatus::Kind::kExited, rank - 1900}};
    const auto kinds = also_failed(failed, Rank{0});
    CHECK(kinds.size() == kMaxFailedKinds);
    CHECK(kinds.front().ranks.size() == kMaxFailedRuns);
}
