// What a line says to do next, and whom it accuses.
#include <string>
#include <vector>

#include "rendezvous/coordinator/stall.hpp"
#include "rendezvous/coordinator/stall_error.hpp"
#include "rendezvous/coordinator/stall_hints.hpp"
#include "rendezvous/coordinator/stall_now.hpp"
#include "tests/catch.hpp"
#include "tests/unit/coordinator/stall_boards.hpp"

using namespace ddprun;
using namespace ddprun::coordinator;
using Catch::Contains;
using Ranks = std::vector<int>;

namespace {

constexpr auto kPatience = 10s;

On sends(int rank, const std::string& op, int peer, std::int64_t tag = 0) {
    On on = On(rank).world(2).transfer(op, peer, tag);
    on.board.view.groups[0].rank = rank;
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

TEST_CASE("of a late rank the hint says how to look into it, and afterwards how to do so the next time",
          "[coordinator]") {
    const StallVerdict verdict = judge({On(0).world(2).in(), On(1).world(2)}, kPatience);
    CHECK(verdict.blamed == Ranks{1});
    CHECK_THAT(verdict.hint, Contains("py-spy dump --pid 1001") && Contains("gdb -p 1001") && Contains("node n0"));
    CHECK_THAT(verdict.hint_after, Contains("ddpctl dump") && Contains("timeout") && !Contains("1001"));
    CHECK_THAT(judge_now({On(0).world(2).in(), On(1).world(2)}, kPatience),
               Catch::StartsWith("LAGGING rank 1") && Catch::EndsWith(". " + verdict.hint));
    const StallVerdict stopped = judge({On(0).world(2).in(), On(1).world(2).process("stopped")}, kPatience);
    CHECK(stopped.hint == "");  // the line says how to wake it
    CHECK_THAT(stopped.hint_after, Contains("Ctrl-Z"));
    CHECK(with_hint("LAGGING", "") == "LAGGING");
}

TEST_CASE("sends that wait for each other's receives belong into one batch", "[coordinator]") {
    const StallVerdict sending = judge({sends(0, "send", 1), sends(1, "send", 0)}, kPatience);
    CHECK(sending.kind == StallKind::kMismatch);
    CHECK_THAT(sending.hint, Contains("ProcessGroup::batch()") && Contains("let one receive first"));
    CHECK((sending.blamed == Ranks{0, 1} || sending.blamed == Ranks{1, 0}));
    const StallVerdict receiving = judge({sends(0, "recv", 1), sends(1, "recv", 0)}, kPatience);
    CHECK_THAT(receiving.hint, Contains("has to send first") && !Contains("batch"));
    const StallVerdict tags = judge({sends(0, "send", 1, 5), sends(1, "recv", 0, 7)}, kPatience);
    CHECK(tags.kind == StallKind::kMismatch);
    CHECK_THAT(tags.hint, Contains("the same tag"));
}

TEST_CASE("of ranks that called different collectives those are accused whom most others contradict", "[coordinator]") {
    std::vector<RankBoard> boards{On(0).world(3).in(), On(1).world(3).in("barrier"), On(2).world(3).in()};
    const StallVerdict verdict = judge(boards, kPatience);
    CHECK(verdict.kind == StallKind::kMismatch);
    CHECK(verdict.blamed == Ranks{1});
    CHECK_THAT(verdict.hint, Contains("same collectives") && Contains("`if rank == "));
    boards.pop_back();
    CHECK(judge(boards, kPatience).blamed.size() == 2);  // one against one
}

TEST_CASE("who left early, or has ended well, is accused, and the hint is to take the same number of steps",
          "[coordinator]") {
    const StallVerdict dead = judge(
        {On(0).world(2).done().in(), On(1).world(2).done().process("exited with code 0, 4.2 s ago", true)}, kPatience);
    CHECK(dead.blamed == Ranks{1});
    CHECK_THAT(dead.hint, Contains("same number of steps") && Contains("ddp::Join"));
    const StallVerdict killed = judge(
        {On(0).world(2).done().in(), On(1).world(2).done().process("killed by SIGKILL, 1 s ago", true)}, kPatience);
    CHECK(killed.hint == "");
    On leaver = On(1).world(2).done();
    leaver.board.view.groups[0].left_ago = 80ms;
    On waiter = On(0).world(2).done().in();
    waiter.board.view.operations.back().ended_ago = 70ms;
    waiter.board.view.operations.back().failed = true;
    const ErrorVerdict left = judge_error({waiter, leaver}, failed(0));
    CHECK_THAT(left.text, Catch::StartsWith("LEFT rank 1"));
    CHECK(left.hint == dead.hint);
    CHECK(left.blamed == Ranks{1});
}

TEST_CASE("who gave a group up is accused, and the hint is to look at that rank", "[coordinator]") {
    On aborter = On(1).world(2).done();
    aborter.board.view.groups[0].aborted_ago = 80ms;
    aborter.board.view.groups[0].abort_reason = "loss is NaN";
    const ErrorVerdict verdict = judge_error({On(0).world(2).done().in(), aborter}, failed(1));
    CHECK(verdict.blamed == Ranks{1});
    CHECK_THAT(verdict.hint, Contains("ProcessGroup::abort") && Contains("rank 1 printed"));
}

TEST_CASE("where a line accuses nobody there may still be something to do", "[coordinator]") {
    const StallVerdict verdict = judge({On(0).world(2).in(), On(1).world(2).in()}, kPatience);
    CHECK(verdict.kind == StallKind::kAllPresent);
    CHECK(verdict.blamed.empty());
    CHECK_THAT(verdict.hint, Contains("network"));
}
