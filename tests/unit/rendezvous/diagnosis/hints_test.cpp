// What a line says to do next, and which ranks are the culprits.
#include <string>
#include <vector>

#include "rendezvous/diagnosis/hints.hpp"
#include "rendezvous/diagnosis/mismatch.hpp"
#include "rendezvous/diagnosis/snapshot.hpp"
#include "rendezvous/diagnosis/stall.hpp"
#include "tests/catch.hpp"
#include "tests/unit/rendezvous/diagnosis/stall_records.hpp"

using namespace ddprun;
using namespace ddprun::diagnosis;
using Catch::Contains;
using Ranks = std::vector<int>;

namespace {

On sends(int rank, const std::string& op, int peer, std::int64_t tag = 0) {
    On on = On(rank).world(2).transfer(op, peer, tag);
    on.record.view.groups[0].rank = rank;
    return on;
}

FailureReport failed(int rank) {
    FailureReport report;
    report.rank = Rank{rank};
    report.host = "n0";
    report.pid = 1;
    report.status = {ExitStatus::Kind::kExited, 1, false};
    report.activity = "failed";
    return report;
}

}  // namespace

TEST_CASE("the hint on a late rank says how to examine it, and afterwards how to do so the next time",
          "[coordinator]") {
    const StallVerdict verdict = diagnose({On(0).world(2).in(), On(1).world(2)}, kMinWait);
    CHECK(verdict.culprits == Ranks{1});
    CHECK_THAT(verdict.hint, Contains("py-spy dump --pid 1001") && Contains("gdb -p 1001") && Contains("node n0"));
    CHECK_THAT(verdict.hint_after, Contains("ddpctl dump") && Contains("timeout") && !Contains("1001"));
    CHECK_THAT(diagnose_now({On(0).world(2).in(), On(1).world(2)}, kMinWait),
               Catch::StartsWith("LAGGING rank 1") && Catch::EndsWith(". " + verdict.hint));
    const StallVerdict stopped =
        diagnose({On(0).world(2).in(), On(1).world(2).process(ProcessState::kStopped)}, kMinWait);
    CHECK(stopped.hint == "");  // the line says how to continue it
    CHECK_THAT(stopped.hint_after, Contains("Ctrl-Z"));
    CHECK(with_hint("LAGGING", "") == "LAGGING");
}

TEST_CASE("the hint on a rank with groups that are not recorded says how to examine it", "[coordinator]") {
    On many = On(1).world(2);
    many.record.view.hidden_groups = 1;
    const StallVerdict verdict = diagnose({On(0).world(2).in(), many}, kMinWait);
    CHECK(verdict.kind == StallKind::kUnknown);
    CHECK(verdict.culprits.empty());
    CHECK_THAT(verdict.text, Contains("1 of its groups is not recorded"));
    CHECK_THAT(verdict.hint, Contains("py-spy dump --pid 1001") && !Contains("init_from_env"));
    CHECK_THAT(verdict.hint_after, Contains("ddpctl dump") && !Contains("init_from_env"));
}

TEST_CASE("a wait that is shown as 5.0 s counts as one of 5 s", "[coordinator]") {
    const auto verdict_after = [](std::chrono::milliseconds waited) {
        return diagnose_now({On(0).world(2).in("all_reduce", waited), On(1).world(2)}, 5s);
    };
    CHECK_THAT(verdict_after(4960ms), Catch::StartsWith("LAGGING rank 1") && Contains("for 5.0 s"));
    CHECK_THAT(verdict_after(4940ms), Catch::StartsWith("RUNNING"));
}

TEST_CASE("sends that wait for each other's receives belong into one batch", "[coordinator]") {
    const StallVerdict sending = diagnose({sends(0, "send", 1), sends(1, "send", 0)}, kMinWait);
    CHECK(sending.kind == StallKind::kMismatch);
    CHECK_THAT(sending.hint, Contains("ProcessGroup::batch()") && Contains("let one receive first"));
    CHECK((sending.culprits == Ranks{0, 1} || sending.culprits == Ranks{1, 0}));
    const StallVerdict receiving = diagnose({sends(0, "recv", 1), sends(1, "recv", 0)}, kMinWait);
    CHECK_THAT(receiving.hint, Contains("has to send first") && !Contains("batch"));
    const StallVerdict tags = diagnose({sends(0, "send", 1, 5), sends(1, "recv", 0, 7)}, kMinWait);
    CHECK(tags.kind == StallKind::kMismatch);
    CHECK_THAT(tags.hint, Contains("the same tag"));
}

TEST_CASE("of ranks that called different collectives the minority is the culprit", "[coordinator]") {
    std::vector<RankRecord> records{On(0).world(3).in(), On(1).world(3).in("barrier"), On(2).world(3).in()};
    const StallVerdict verdict = diagnose(records, kMinWait);
    CHECK(verdict.kind == StallKind::kMismatch);
    CHECK(verdict.culprits == Ranks{1});
    CHECK_THAT(verdict.hint, Contains("same collectives") && Contains("`if rank == "));
    records.pop_back();
    CHECK(diagnose(records, kMinWait).culprits.size() == 2);  // one against one
}

TEST_CASE("a rank that left early, or has ended well, is the culprit, and the hint is to take the same number of steps",
          "[coordinator]") {
    const StallVerdict dead = diagnose({On(0).world(2).done().in(), On(1).world(2).done().ended(kExited0)}, kMinWait);
    CHECK(dead.culprits == Ranks{1});
    CHECK_THAT(dead.hint, Contains("same number of steps") && Contains("ddp::Join"));
    const StallVerdict killed = diagnose({On(0).world(2).done().in(), On(1).world(2).done().ended(kKilled)}, kMinWait);
    CHECK(killed.hint == "");
    On leaver = On(1).world(2).done();
    leaver.record.view.groups[0].left_ago = 80ms;
    On waiter = On(0).world(2).done().in();
    waiter.record.view.operations.back().ended_ago = 70ms;
    waiter.record.view.operations.back().failed = true;
    const ErrorVerdict left = diagnose_error({waiter, leaver}, failed(0));
    CHECK_THAT(left.text, Catch::StartsWith("LEFT rank 1"));
    CHECK(left.hint == dead.hint);
    CHECK(left.culprits == Ranks{1});
}

TEST_CASE("a rank that aborted a group is the culprit, and the hint is to look at that rank", "[coordinator]") {
    On aborter = On(1).world(2).done();
    aborter.record.view.groups[0].aborted_ago = 80ms;
    aborter.record.view.groups[0].abort_reason = "loss is NaN";
    const ErrorVerdict verdict = diagnose_error({On(0).world(2).done().in(), aborter}, failed(1));
    CHECK(verdict.culprits == Ranks{1});
    CHECK_THAT(verdict.hint, Contains("ProcessGroup::abort") && Contains("rank 1 printed"));
}

TEST_CASE("a line without a culprit may have a hint", "[coordinator]") {
    std::vector<RankRecord> records{On(0).world(2).in(), On(1).world(2).in()};
    const StallVerdict verdict = diagnose(records, kMinWait);
    CHECK(verdict.kind == StallKind::kAllPresent);
    CHECK(verdict.culprits.empty());
    CHECK_THAT(verdict.hint, Catch::StartsWith("They are all on one node, so it is not the network: `py-spy dump") &&
                                 Contains("nvidia-smi"));
    CHECK_THAT(verdict.hint_after, Contains("while such a job waits, `py-spy dump"));
    records[1].host = "n1";
    CHECK_THAT(diagnose(records, kMinWait).hint, Catch::StartsWith("Look at the network between these nodes"));
    records = {On(0).world(3).in(), On(1).world(3).in(), On(2).host("n1").world(3).done()};  // rank 2 has ended it
    CHECK(diagnose(records, kMinWait).kind == StallKind::kAllPresent);
    CHECK_THAT(diagnose(records, kMinWait).hint, Catch::StartsWith("Look at the network between these nodes"));
}
