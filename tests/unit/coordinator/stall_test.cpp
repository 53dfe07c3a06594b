// Who keeps whom waiting: boards in, one line out.
#include <chrono>
#include <numeric>
#include <string>
#include <vector>

#include "rendezvous/coordinator/stall.hpp"
#include "tests/catch.hpp"
#include "tests/unit/coordinator/stall_boards.hpp"

using namespace ddprun;
using namespace ddprun::coordinator;
using namespace std::chrono_literals;
using Catch::Contains;
using Catch::EndsWith;
using Catch::StartsWith;

namespace {

constexpr auto kPatience = 10s;

}  // namespace

TEST_CASE("nobody is stuck: all is done, or going on", "[coordinator]") {
    CHECK(judge({}, kPatience).kind == StallKind::kNone);
    CHECK(judge({On(0).world(2).done(), On(1).world(2).done()}, kPatience).kind == StallKind::kNone);
    CHECK(judge({On(0).world(2).in("all_reduce", 2s), On(1).world(2).done()}, kPatience).kind == StallKind::kNone);
    CHECK(judge({On(0).world(1)}, kPatience).text == "");
}

TEST_CASE("the rank that has not come is named, with what it finished last and its phase", "[coordinator]") {
    std::vector<RankBoard> boards;
    for (int rank = 0; rank < 3; ++rank) boards.push_back(On(rank).world(4).done().in());
    On late = On(3).world(4).done().phase("eval");
    late.board.host = "n1";
    late.board.view.operations.back().tag = "bucket 3";
    boards.push_back(late);
    const StallVerdict verdict = judge(boards, kPatience);
    CHECK(verdict.kind == StallKind::kLagging);
    CHECK(
        verdict.text ==
        "LAGGING rank 3 (node n1): last finished #1 all_reduce sum f32[4] 'bucket 3', peers wait in #2 all_reduce sum "
        "f32[4] of group 'world' for 31.0 s; in phase 'eval'");
}

TEST_CASE("several that have not come are folded into ranges; a group of one rank more or less does not matter",
          "[coordinator]") {
    std::vector<RankBoard> boards;
    for (int rank = 0; rank < 1000; ++rank)
        boards.push_back(rank % 3 == 0 ? On(rank).world(1000).done().in() : On(rank).world(1000).done());
    CHECK_THAT(judge(boards, kPatience).text,
               StartsWith("LAGGING ranks 1-2, 4-5, 7-8, 10-11, 13-14, 16-17, 19-20, 22-23, … (666 in all) (node n0): "
                          "rank 1 last finished #1"));
    CHECK(name_ranks({5, 3, 4, 9, 4}) == "ranks 3-5, 9");
    CHECK(name_ranks({7}) == "rank 7");
}

TEST_CASE("a process that is stopped is the cause, whether it has come to the operation or not", "[coordinator]") {
    const StallVerdict absent = judge({On(0).world(2).in(), On(1).world(2).process("stopped")}, kPatience);
    CHECK(absent.kind == StallKind::kLagging);
    CHECK_THAT(absent.text, StartsWith("LAGGING rank 1") &&
                                Contains("has finished nothing of the group, rank 0 waits in") &&
                                Contains("its process 1001 is stopped (a signal, a debugger): kill -CONT 1001"));
    const StallVerdict inside = judge({On(0).world(2).in(), On(1).world(2).in().process("stopped")}, kPatience);
    CHECK_THAT(inside.text, StartsWith("LAGGING rank 1") && Contains("is stopped"));
    CHECK_THAT(judge({On(0).world(2).in(), On(1).world(2).process("in the kernel")}, kPatience).text,
               Contains("its process 1001 is in the kernel"));
}

TEST_CASE("peers of one that has ended wait for the dead", "[coordinator]") {
    const StallVerdict verdict = judge(
        {On(0).world(2).done().in(), On(1).world(2).done().process("exited with code 0, 4.2 s ago", true)}, kPatience);
    CHECK(verdict.kind == StallKind::kDead);
    CHECK(verdict.text ==
          "DEAD rank 1 (node n0, exited with code 0, 4.2 s ago): peers wait in #2 all_reduce sum f32[4] "
          "of group 'world' for 31.0 s");
    CHECK_THAT(verdict.hint, StartsWith("Give all ranks the same number of steps"));
    RankBoard never_joined = On(1).process("exited with code 0, 4.2 s ago", true);
    never_joined.view = {};
    const StallVerdict joining = judge({On(0).world(2).in("init_from_env"), never_joined}, kPatience);
    CHECK_THAT(joining.text, StartsWith("DEAD rank 1") && Contains("peers wait in #1 init_from_env of group 'world'"));
    CHECK(joining.hint == "All ranks must call ddp::init_from_env()");
}

TEST_CASE("ranks that called different operations are a mismatch, also when the counts alone differ", "[coordinator]") {
    std::vector<RankBoard> boards;
    for (int rank = 0; rank < 7; ++rank) boards.push_back(On(rank).world(8).done().in());
    for (RankBoard& board : boards) board.view.operations.back().tag = "bucket 3";
    boards.push_back(On(7).host("n1").world(8).done().in("broadcast"));
    boards.back().view.operations.back().dtype = "i64";
    boards.back().view.operations.back().count = 1;
    const StallVerdict verdict = judge(boards, kPatience);
    CHECK(verdict.kind == StallKind::kMismatch);
    CHECK(verdict.text ==
          "MISMATCH at #2 of group 'world': ranks 0-6 (node n0) all_reduce sum f32[4] 'bucket 3', rank 7 (node n1) "
          "broadcast i64[1]");
    boards[2].view.operations.back().tag = "another";  // which ranks do not compare
    CHECK_THAT(judge(boards, kPatience).text, Contains("ranks 0-6 (node n0) all_reduce sum f32[4], rank 7"));

    std::vector<RankBoard> counts{On(0).world(2).in("gather_v"), On(1).world(2).in("gather_v")};
    counts[1].view.operations.back().fingerprint = 1;
    CHECK_THAT(judge(counts, kPatience).text,
               StartsWith("MISMATCH") && Contains("rank 0 (node n0) gather_v with one list of counts, rank 1 (node n0) "
                                                  "gather_v with another list of counts"));
    for (RankBoard& board : counts) board.view.operations.back().op = "all_to_all_v";  // whose lists nobody compares
    CHECK_THAT(judge(counts, kPatience).text, EndsWith("rank 0 (node n0) all_to_all_v of no step, rank 1 (node n0) "
                                                       "all_to_all_v of step 1"));
}

TEST_CASE("all have come and nothing moves: the transport", "[coordinator]") {
    const StallVerdict verdict = judge(
        {On(0).world(3).done().in(), On(1).world(3).done().done(), On(2).host("n1").world(3).done().in()}, kPatience);
    CHECK(verdict.kind == StallKind::kAllPresent);
    CHECK(verdict.text ==
          "ALL PRESENT but no progress: transport, or work that takes long: ranks 0 (node n0), 2 (node n1) in #2 "
          "all_reduce sum f32[4] of group 'world' for 31.0 s");
}

TEST_CASE("the group that keeps others waiting is told, not those that wait for it", "[coordinator]") {
    // Rank 0 waits in the world for 1, which waits in a pair for 2, which computes.
    const RankBoard first = On(0).group("pair", {{1, 2, 1}}).world(3).in();
    const RankBoard second = On(1).world(3).group("world/1.0:pair", {{1, 2, 1}}).in("barrier", 20s);
    const RankBoard third = On(2).world(3).group("world/1.0:pair", {{1, 2, 1}}).phase("loading");
    const StallVerdict verdict = judge({first, second, third}, kPatience);
    CHECK(verdict.kind == StallKind::kLagging);
    CHECK_THAT(verdict.text, StartsWith("LAGGING rank 2") && Contains("in phase 'loading'"));
}

TEST_CASE("groups that wait for each other are a circle", "[coordinator]") {
    const RankBoard first = On(0).group("b", {{0, 2, 1}}).group("a", {{0, 2, 1}}).in();
    const RankBoard second = On(1).group("a", {{0, 2, 1}}).group("b", {{0, 2, 1}}).in();
    const StallVerdict verdict = judge({first, second}, kPatience);
    CHECK(verdict.kind == StallKind::kCircle);
    CHECK(verdict.text ==
          "A CIRCLE: rank 0 (node n0) waits in #1 all_reduce sum f32[4] of group 'a' for 31.0 s for rank 1 (node n0), "
          "which waits in #1 all_reduce sum f32[4] of group 'b': all ranks must call them in one order");

    // Several that are waited for may be in several operations.
    const std::vector<RankRun> three{{0, 3, 1}};
    const RankBoard waits = On(0).group("a", three).in();
    const RankBoard second_in_b = On(1).group("a", three).group("b", {{0, 2, 1}}).in("barrier");
    const RankBoard third_in_c = On(2).host("n1").group("a", three).group("c", {{0, 1, 1}, {2, 1, 1}}).in("barrier");
    CHECK_THAT(judge({waits, second_in_b, third_in_c}, kPatience).text,
               Contains("for rank 1 (node n0), which waits in #1 barrier of group 'b', and for rank 2 (node n1), which "
                        "waits in #1 barrier of group 'c': all ranks"));
}

TEST_CASE("members of a strided group are told from its neighbours", "[coordinator]") {
    const std::vector<RankRun> even{{0, 3, 2}};
    std::vector<RankBoard> boards{On(0).group("even", even).in(), On(2).group("even", even).in(),
                                  On(4).group("even", even)};
    boards.push_back(On(1).group("odd", {{1, 2, 2}}).done());
    CHECK_THAT(judge(boards, kPatience).text, StartsWith("LAGGING rank 4 (node n0): has finished nothing"));
}

TEST_CASE("a receive waits for its sender alone", "[coordinator]") {
    On receiver = On(0).world(3).in("recv");
    BoardOperation& operation = receiver.board.view.operations.back();
    operation.p2p_seq = 7;
    operation.peer = 2;
    receiver.board.view.groups.back() = {"world", 0, 3, {{0, 3, 1}}, true, 0, 0, 0};
    const StallVerdict verdict = judge({receiver, On(1).world(3), On(2).world(3).phase("io")}, kPatience);
    CHECK(verdict.kind == StallKind::kLagging);
    CHECK_THAT(verdict.text, StartsWith("LAGGING rank 2") && Contains("recv #7 peer 2") && Contains("in phase 'io'"));
}

TEST_CASE("ranks without a board are said to be unknown, never to be the cause", "[coordinator]") {
    RankBoard silent = On(1);
    silent.view = {};
    const StallVerdict verdict = judge({On(0).world(3).in(), silent}, kPatience);
    CHECK(verdict.kind == StallKind::kUnknown);
    CHECK_THAT(verdict.text, StartsWith("WAITING for ranks 1 (node n0), 2, which have shown no board"));
}

TEST_CASE("who has more groups than its board has places for is not called late", "[coordinator]") {
    On many = On(1).world(3);
    many.board.view.hidden_groups = 2;
    const StallVerdict verdict = judge({On(0).world(3).in(), many, On(2).world(3).in()}, kPatience);
    CHECK(verdict.kind == StallKind::kUnknown);
    CHECK_THAT(verdict.text,
               StartsWith("WAITING for rank 1 (node n0): rank 1 computes, or waits in one of its 2 groups that do "
                          "not fit on its board: peers wait in #1"));
    CHECK_THAT(judge({On(0).world(3).in(), many, On(2).world(3)}, kPatience).text, StartsWith("LAGGING rank 2"));
}

TEST_CASE("what a worker has scribbled makes no verdict fail", "[coordinator]") {
    RankBoard odd = On(0).world(2).in();
    odd.view.operations.back().group = 99;
    odd.view.operations.push_back(odd.view.operations.back());
    odd.view.operations.back().group = -1;
    CHECK(judge({odd, On(1).world(2)}, kPatience).kind == StallKind::kNone);
    RankBoard huge = On(0).group("world", {{0, 1 << 27, 1}, {5, 1 << 27, -1}}).in();
    CHECK(judge({huge}, kPatience).kind == StallKind::kUnknown);
}

TEST_CASE("sends and receives that do not fit each other are a mismatch; those that do, the transport",
          "[coordinator]") {
    const StallVerdict both =
        judge({On(0).world(3).transfer("recv", 1), On(1).world(3).transfer("recv", 0)}, kPatience);
    CHECK(both.kind == StallKind::kMismatch);
    CHECK_THAT(both.text, StartsWith("MISMATCH: rank ") && Contains(" (node n0) is in recv #1 peer ") &&
                              Contains("recv #1 peer 1 tag 0"));
    const StallVerdict tags =
        judge({On(0).world(3).transfer("send", 1, 1), On(1).world(3).transfer("recv", 0, 2)}, kPatience);
    CHECK(tags.kind == StallKind::kMismatch);
    CHECK_THAT(tags.text, Contains("tag 1") && Contains("tag 2"));
    const StallVerdict fit =
        judge({On(0).world(3).transfer("send", 1, 1), On(1).host("n1").world(3).transfer("recv", 0, 1, 30s),
               On(2).world(3).transfer("recv", 1, 5, 12s)},
              kPatience);
    CHECK(fit.kind == StallKind::kAllPresent);
    CHECK(fit.text ==
          "ALL PRESENT but no progress: transport from rank 0 (node n0) to rank 1 (node n1), or work that takes long: "
          "rank 0 in send #1 peer 1 tag 1 of group 'world' for 31.0 s");
    const StallVerdict seen_by_receiver = judge(
        {On(0).world(2).transfer("send", 1, 1, 30s), On(1).host("n1").world(2).transfer("recv", 0, 1)}, kPatience);
    CHECK_THAT(seen_by_receiver.text,
               Contains("transport from rank 0 (node n0) to rank 1 (node n1), or") && Contains("rank 1 in recv #1"));
}

TEST_CASE("late ranks are named with the hosts that they are on, of many hosts the first", "[coordinator]") {
    std::vector<RankBoard> boards{On(0).world(14).in()};
    for (int rank = 1; rank < 4; ++rank) boards.push_back(On(rank).host(rank < 3 ? "a" : "b").world(14));
    CHECK_THAT(judge(boards, kPatience).text, StartsWith("LAGGING ranks 1-2 (node a), 3 (node b): rank 1 has"));
    for (int rank = 4; rank < 14; ++rank) boards.push_back(On(rank).host("c" + std::to_string(rank)).world(14));
    CHECK_THAT(judge(boards, kPatience).text,
               StartsWith("LAGGING ranks 1-2 (node a), 3 (node b), 4 (node c4), 5 (node c5), … (13 on 12 nodes): "));
}

TEST_CASE("who has waited for less than the patience waits all the same", "[coordinator]") {
    const RankBoard first = On(0).group("pair", {{1, 2, 1}}).world(3).in();
    const RankBoard second = On(1).world(3).group("pair", {{1, 2, 1}}).in("barrier", 6s);
    const RankBoard third = On(2).world(3).group("pair", {{1, 2, 1}}).phase("loading");
    CHECK_THAT(judge({first, second, third}, kPatience).text, StartsWith("LAGGING rank 2"));
}

TEST_CASE("what was only posted makes nobody a culprit, and excuses nobody", "[coordinator]") {
    // Rank 1 has posted a receive, or a collective of another group, and hangs in its data loader.
    const RankBoard waits = On(0).group("other", {{0, 2, 1}}).world(2).in();
    for (const RankBoard& hangs :
         {RankBoard(On(1).world(2).transfer("recv", 0, 0, 40s).only_posted().phase("loading")),
          RankBoard(On(1).world(2).group("other", {{0, 2, 1}}).in("all_reduce", 40s).only_posted().phase("loading"))}) {
        const StallVerdict verdict = judge({waits, hangs}, kPatience);
        CHECK(verdict.kind == StallKind::kLagging);
        CHECK_THAT(verdict.text, StartsWith("LAGGING rank 1 (node n0): ") && Contains("'loading'"));
    }
    // Nobody waits: no stall, however old.
    CHECK(judge({On(0).world(2).done(), On(1).world(2).transfer("recv", 0, 0, 3h).only_posted()}, kPatience).kind ==
          StallKind::kNone);
    CHECK(judge({On(0).world(2).done(), On(1).world(2).done().in("all_reduce", 3h).only_posted()}, kPatience).kind ==
          StallKind::kNone);
}

TEST_CASE("who waits for what began long before, or comes late, waits since then only", "[coordinator]") {
    On waiting = On(0).world(2).in("all_reduce", 3h);
    waiting.board.view.operations.back().waited_ago = 4s;
    CHECK(judge({waiting, On(1).world(2)}, kPatience).kind == StallKind::kNone);
    waiting.board.view.operations.back().waited_ago = 12s;
    CHECK_THAT(judge({waiting, On(1).world(2)}, kPatience).text,
               StartsWith("LAGGING rank 1") && Contains("for 12.0 s"));
    waiting.board.view.operations.back().started_ago = 4s;  // many were before it, and are done
    CHECK(judge({waiting, On(1).world(2)}, kPatience).kind == StallKind::kNone);
}

TEST_CASE("who looks now and then waits unless it has called something since", "[coordinator]") {
    const RankBoard first = On(0).world(2).in();
    On looks = On(1).world(2).transfer("recv", 0).polled();
    CHECK(judge({first, looks}, kPatience).kind == StallKind::kCircle);
    On receives = looks;
    receives.transfer("arrived", 0, 5, 2s).only_posted();  // it has not called that,
    receives.board.view.operations.back().count = 9;       // nor is it like what it waits for
    CHECK(judge({first, receives}, kPatience).kind == StallKind::kCircle);
    looks.done().board.view.operations.back().queued_ago = 2s;
    looks.board.view.groups.back().queued = 0;
    CHECK(judge({first, looks}, kPatience).kind == StallKind::kLagging);
}

TEST_CASE("what an ended worker had in hand speaks no more, and it meets nobody's transfer", "[coordinator]") {
    const RankBoard alive = On(0).world(2).done().done().in();
    CHECK(judge({alive, On(1).world(2).done().done().in().process("killed", true)}, kPatience).seq == 3);
    CHECK(judge({On(0).world(2), On(1).world(2).in().process("killed", true)}, kPatience).kind == StallKind::kNone);
    const StallVerdict transfer = judge(
        {On(0).world(2).transfer("send", 1), On(1).world(2).transfer("recv", 0).process("exited with code 0", true)},
        kPatience);
    CHECK(transfer.kind == StallKind::kDead);
}

TEST_CASE("of a group whose members did not fit on the board nobody is named who may not be meant", "[coordinator]") {
    On first = On(0).group("odd", {}).in();
    first.board.view.groups.back().size = 40;
    CHECK(judge({first}, kPatience).kind == StallKind::kUnknown);
    On sender = On(0).group("odd", {}).transfer("send", 7);
    sender.board.view.groups.back().size = 40;
    CHECK(judge({sender}, kPatience).kind == StallKind::kUnknown);
}

TEST_CASE("a thousand ranks with many transfers each are judged while nobody misses the judge", "[coordinator]") {
    constexpr int kRanks = 1'000;
    std::vector<RankBoard> boards;
    for (int rank = 0; rank < kRanks; ++rank) {
        On here = On(rank).world(kRanks);
        for (int tag = 0; tag < 24; ++tag) {
            here.transfer("send", (rank + 1) % kRanks, tag);
            here.transfer("recv", (rank + kRanks - 1) % kRanks, tag);
        }
        boards.push_back(here);
    }
    const auto before = std::chrono::steady_clock::now();
    CHECK(judge(boards, kPatience).kind == StallKind::kAllPresent);
    // Agents give a daemon up that is silent for 3 s: what is quadratic here would end the job.
    CHECK(std::chrono::steady_clock::now() - before < 3s);
}
