// Two nodes that cannot reach each other although both reach the daemon, from the flight records of their workers.
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/diagnosis/link.hpp"
#include "rendezvous/diagnosis/rewind.hpp"
#include "tests/catch.hpp"
#include "tests/unit/rendezvous/diagnosis/stall_records.hpp"
#include "worker_lib/src/native/protocol/deadlines.hpp"

using namespace ddprun;
using namespace ddprun::diagnosis;
using Catch::Contains;
using Catch::StartsWith;

namespace {

constexpr ExitStatus kStopSignal{ExitStatus::Kind::kSignaled, SIGTERM};

/// A rank of node n<rank> that waits in the second all-reduce.
On waits(int rank, int size, int unreachable = -1) {
    On here = On(rank).host("n" + std::to_string(rank)).world(size).done().in("all_reduce", 4s);
    here.record.view.operations.back().unreachable = unreachable;
    return here;
}

/// The same of a rank that failed 500 ms ago because another one was lost.
On lost_peer(int rank, int size, int unreachable = -1) {
    On here = waits(rank, size, unreachable).ended(kExited1, 400ms);
    RecordedOperation& operation = here.record.view.operations.back();
    operation.ended_ago = 500ms;
    operation.failed = operation.peer_failed = true;
    return here;
}

FailureReport report_of(int rank, ExitStatus status = kExited1) {
    FailureReport report;
    report.rank = Rank{rank};
    report.pid = 1;
    report.status = status;
    report.peer_failed = true;
    return report;
}

}  // namespace

TEST_CASE("the hint names the time that the worker library waits for a host", "[stall][unit]") {
    CHECK(kLinkTolerated == ddp::detail::kUnreachableTolerated);
}

TEST_CASE("a cut link names both nodes and no culprit, however short the wait is", "[stall][unit]") {
    const StallVerdict verdict = diagnose({waits(0, 3), waits(1, 3, 0), waits(2, 3)}, kMinWait);
    CHECK(verdict.kind == StallKind::kLink);
    CHECK(verdict.text ==
          "LINK node n0 and node n1 cannot reach each other: rank 1 (node n1) gets no answer from the host of rank 0 "
          "(node n0), although both nodes reach the daemon; it waits in #2 all_reduce sum f32[4] of group 'world' for "
          "4.0 s");
    CHECK_THAT(verdict.text_after, StartsWith("LINK node n0 and node n1 could not reach each other: rank 1 (node n1) "
                                              "got no answer from the host of rank 0 (node n0), although both nodes "
                                              "reached the daemon; it waited in #2 "));
    CHECK(verdict.links == std::vector<CutLink>{{"n0", "n1"}});
    CHECK(verdict.culprits.empty());
    CHECK_THAT(verdict.hint, Contains("firewall") && Contains("within 15 s of the cut, the job goes on"));
    CHECK_THAT(verdict.hint_after, Contains("firewall") && !Contains("goes on"));
}

TEST_CASE("both ends of one link are one link, and several links are counted or have a node in common",
          "[stall][unit]") {
    CHECK(diagnose_link({waits(0, 3, 1), waits(1, 3, 0), waits(2, 3)}).links.size() == 1);
    const StallVerdict star = diagnose_link({waits(0, 3, 2), waits(1, 3, 2), waits(2, 3, 1)});
    CHECK_THAT(star.text, StartsWith("LINK node n2 and the nodes n0 and n1 cannot reach each other: rank "));
    CHECK(star.links == std::vector<CutLink>{{"n0", "n2"}, {"n1", "n2"}});
    CHECK_THAT(diagnose_link({waits(0, 4, 1), waits(1, 4), waits(2, 4, 3), waits(3, 4)}).text,
               StartsWith("LINK 2 pairs of nodes cannot reach each other, one of them node n0 and node n1: "));
}

TEST_CASE("links share a node if one node is an end of each", "[stall][unit]") {
    CHECK(share_a_node({{"n0", "n1"}}, {{"n0", "n1"}}));
    CHECK(share_a_node({{"n0", "n1"}}, {{"n1", "n2"}, {"n1", "n3"}}));
    CHECK_FALSE(share_a_node({{"n0", "n1"}, {"n1", "n2"}}, {{"n0", "n2"}}));
    CHECK_FALSE(share_a_node({{"n0", "n1"}}, {{"n2", "n3"}}));
    CHECK_FALSE(share_a_node({}, {{"n0", "n1"}, {"n0", "n2"}}));
}

TEST_CASE("a host that may be down, or an operation that has ended, shows no cut link", "[stall][unit]") {
    On silent = waits(0, 2);
    silent.record.process.reset();  // its agent has not answered
    CHECK(diagnose_link({silent, waits(1, 2, 0)}).kind == StallKind::kNone);
    CHECK(diagnose_link({waits(1, 2, 0)}).kind == StallKind::kNone);
    CHECK(diagnose_link({waits(0, 2).ended(kKilled), waits(1, 2, 0)}).kind == StallKind::kNone);
    CHECK(diagnose_link({waits(0, 2).host("n1"), waits(1, 2, 0)}).kind == StallKind::kNone);  // one node
    On stopped = waits(0, 2);
    stopped.record.process = ProcessState::kStopped;  // its queue of new connections may be full
    CHECK(diagnose_link({stopped, waits(1, 2, 0)}).kind == StallKind::kNone);
    On waiting = waits(1, 2, 0);
    waiting.record.process = ProcessState::kStopped;  // the link may be whole again: it would not see that
    CHECK(diagnose_link({waits(0, 2), waiting}).kind == StallKind::kNone);
    On done = waits(1, 2, 0);
    done.record.view.operations.back().ended_ago = 1s;
    CHECK(diagnose_link({waits(0, 2), done}).kind == StallKind::kNone);
}

TEST_CASE("a dead worker explains more than the link to its node", "[stall][unit]") {
    const StallVerdict verdict = diagnose({waits(0, 2).ended(kKilled), waits(1, 2, 0).in("all_reduce", 31s)}, kMinWait);
    CHECK(verdict.kind == StallKind::kDead);
}

TEST_CASE("after the failure the link is named, whichever rank failed first and although all have ended",
          "[stall][unit]") {
    const int first = GENERATE(0, 1, 2);
    std::vector<RankRecord> records;
    for (int rank = 0; rank < 3; ++rank) {
        On one = rank == first ? lost_peer(rank, 3) : waits(rank, 3).ended(kStopSignal, 300ms);
        if (rank == 1) one.record.view.operations.back().unreachable = 0;
        records.push_back(one);
    }
    const StallVerdict verdict = diagnose_link_before(records, report_of(first));
    CHECK(verdict.kind == StallKind::kLink);
    CHECK_THAT(verdict.text_after, StartsWith("LINK node n0 and node n1 could not reach each other"));
    CHECK(diagnose_link_before(records, report_of(first, kKilled)).kind == StallKind::kNone);
}

TEST_CASE("a link that was cut while no operation ran is named by the one that failed because of it", "[stall][unit]") {
    On failed = lost_peer(1, 3, 0);
    failed.record.view.operations.back().queued_ago = 510ms;
    failed.record.view.operations.back().waited_ago = 510ms;
    const StallVerdict verdict =
        diagnose_link_before({waits(0, 3).ended(kStopSignal, 300ms), failed, lost_peer(2, 3)}, report_of(2));
    CHECK(verdict.kind == StallKind::kLink);
    CHECK_THAT(verdict.text_after,
               StartsWith("LINK node n0 and node n1 could not reach each other: rank 1 (node n1) got no answer from "
                          "the host of rank 0 (node n0)") &&
                   Contains("; it failed in #2 all_reduce sum f32[4] of group 'world'") && !Contains(" for "));
}

TEST_CASE("a worker that failed by itself is not explained by a link", "[stall][unit]") {
    const std::vector<RankRecord> records{waits(0, 3).ended(kStopSignal, 300ms), lost_peer(1, 3, 0),
                                          On(2).host("n2").world(3).done().ended(kExited1, 600ms)};
    FailureReport own = report_of(2);
    own.peer_failed = false;
    CHECK(diagnose_link_before(records, own).kind == StallKind::kNone);
    CHECK(diagnose_link_before({waits(0, 2), waits(1, 2)}, report_of(0)).kind == StallKind::kNone);
}

TEST_CASE("a deadline that has passed because of a cut link names the link", "[stall][unit]") {
    On late = lost_peer(1, 2, 0);
    late.record.view.operations.back().peer_failed = false;
    late.record.view.operations.back().timed_out = true;
    CHECK(diagnose_timeout({waits(0, 2), late}).kind == StallKind::kLink);
}
