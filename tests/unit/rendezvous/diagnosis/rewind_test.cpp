// Who kept those waiting who failed by a deadline, from boards that were read when all was over.
#include <algorithm>

#include "rendezvous/coordinator/stall_rewind.hpp"
#include "tests/catch.hpp"
#include "tests/unit/coordinator/stall_boards.hpp"
#include "worker_lib/src/native/deadlines.hpp"

using namespace ddprun;
using namespace ddprun::coordinator;
using Catch::Contains;
using Catch::EndsWith;
using Catch::StartsWith;

namespace {

/// A rank that waited 20 s for what has failed 2 s ago, and whose process has ended since.
RankBoard failed(int rank, int size, bool timed_out = true) {
    On here = On(rank).world(size).done().in("all_reduce", 22s).process("exited with code 1, 1.9 s ago", true);
    here.board.ended_ago = 1900ms;
    here.board.view.groups.back().live = false;  // it was destroyed on the way out
    BoardOperation& operation = here.board.view.operations.back();
    operation.ended_ago = timed_out ? 2s : 1999ms;
    operation.failed = true;
    operation.timed_out = timed_out;
    return here;
}

/// Waits for a message of four floats.
On receives(int rank, int size, int peer, std::int64_t tag) {
    On here = On(rank).host("n1").world(size).transfer("recv", peer, tag);
    here.board.view.groups.back().rank = rank;
    here.board.view.operations.back().dtype = "f32";
    here.board.view.operations.back().count = 4;
    return here;
}

/// Has got one under tag 5 that it does not ask for.
On holds(On here, int peer, std::uint64_t count) {
    BoardOperation& one = here.transfer("arrived", peer, 5, 30s).board.view.operations.back();
    one.dtype = "f32";
    one.count = count;
    one.p2p_seq = 3;
    one.waited_ago.reset();
    return here;
}

}  // namespace

TEST_CASE("who gives up last because of one deadline does so within the time that counts as together",
          "[stall][unit]") {
    const TimePoint deadline = Clock::now();
    const auto last = std::max(ddp::detail::finishing_deadline(deadline), ddp::detail::last_network_deadline(deadline));
    CHECK(last - deadline + 2 * ddp::detail::kFarewell < kTogether);  // it hears others out, and says goodbye
    CHECK(last - deadline > kTogether / 2);                           // nor is that far too long
}

TEST_CASE("after a deadline the rank that had not come is named, though its peers have failed since", "[coordinator]") {
    const StallVerdict verdict =
        judge_timeout({failed(0, 3), failed(1, 3, false), On(2).world(3).done().phase("loading")});
    CHECK(verdict.kind == StallKind::kLagging);
    CHECK_THAT(verdict.text, StartsWith("LAGGING rank 2 (node n0): last finished #1 all_reduce sum f32[4], peers wait "
                                        "in #2 all_reduce sum f32[4] of group 'world' for 19.9 s; in phase"));
}

TEST_CASE("who came after the deadline had not come, and what the abort killed was alive", "[coordinator]") {
    On late = On(2).world(3).done().in("all_reduce", 1s).process("killed by SIGTERM, 0.5 s ago", true);
    late.board.ended_ago = 500ms;
    BoardOperation& operation = late.board.view.operations.back();
    operation.queued_ago = operation.ended_ago.emplace(1s);
    operation.failed = operation.timed_out = true;
    CHECK_THAT(judge_timeout({failed(0, 3), failed(1, 3, false), late}).text, StartsWith("LAGGING rank 2 (node n0): "));
}

TEST_CASE("who was stopped is told to have been, although the abort made it go on, and end", "[coordinator]") {
    On late = On(1).world(2).done().process("killed by SIGTERM, 1.8 s ago", true);
    late.board.ended_ago = 1800ms;
    late.board.process_before = "stopped";
    const std::string words = "; its process 1001 was stopped (a signal, a debugger)";
    CHECK_THAT(judge_timeout({failed(0, 2), late}).text, StartsWith("LAGGING rank 1 (node n0): ") && EndsWith(words));
    late.process("running").board.ended_ago.reset();  // it takes its time
    CHECK_THAT(judge_timeout({failed(0, 2), late}).text, EndsWith(words));
    On inside = On(1).world(2).done().in("all_reduce", 22s).process("running");  // stopped in the operation
    inside.board.process_before = "stopped";
    CHECK_THAT(judge_timeout({failed(0, 2), inside}).text, StartsWith("LAGGING rank 1 ") && EndsWith(words));
}

TEST_CASE("who had gone on when the deadline passed, told to end long before, was not stopped", "[coordinator]") {
    On saving = On(1).world(2).done().process("running");
    saving.board.process_before = "stopped";
    CHECK_THAT(judge_timeout({failed(0, 2), saving}).text, EndsWith(" was stopped (a signal, a debugger)"));
    saving.board.process_before_ago = 2099ms;
    CHECK_THAT(judge_timeout({failed(0, 2), saving}).text, EndsWith(" was stopped (a signal, a debugger)"));
    saving.board.process_before_ago = 5s;
    CHECK_THAT(judge_timeout({failed(0, 2), saving}).text, StartsWith("LAGGING rank 1 ") && !Contains("stopped"));
    saving.process("exited with code 0, 0.1 s ago", true).board.ended_ago = 100ms;
    CHECK_THAT(judge_timeout({failed(0, 2), saving}).text, StartsWith("LAGGING rank 1 ") && !Contains("stopped"));
    saving.board.process_before = "in the kernel";
    saving.board.process_before_ago = 1s;
    CHECK_THAT(judge_timeout({failed(0, 2), saving}).text, EndsWith("; its process 1001 was in the kernel"));
}

TEST_CASE("who comes to what its peers have failed in blames nobody", "[coordinator]") {
    On late = On(1).world(2).done().in("all_reduce", 1s);
    BoardOperation& operation = late.board.view.operations.back();
    operation.queued_ago = 1s;
    operation.ended_ago = 999ms;
    operation.failed = operation.timed_out = true;
    CHECK(judge_timeout({failed(0, 2), late}, 1500ms).kind == StallKind::kNone);
    CHECK(judge_timeout({failed(0, 2), late}).ranks == std::vector<int>{1});  // for that it was late, as before
    // A group of the same name that was made since is another one.
    RankBoard again = failed(0, 2);
    again.view.groups.push_back(again.view.groups.back());
    CHECK(judge_timeout({again, late}, 1500ms).kind != StallKind::kNone);
}

TEST_CASE("who had ended before the deadline is dead; when all had come it was the transport", "[coordinator]") {
    On dead = On(1).world(2).done().process("exited with code 0, 15.0 s ago", true);
    dead.board.ended_ago = 15s;
    CHECK(judge_timeout({failed(0, 2), dead}).kind == StallKind::kDead);
    CHECK(judge_timeout({failed(0, 2), failed(1, 2, false)}).kind == StallKind::kAllPresent);
}

TEST_CASE("what a rank called that others did not is seen after the deadline, too", "[coordinator]") {
    RankBoard other = failed(1, 2, false);
    other.view.operations.back().op = "broadcast";
    CHECK(judge_timeout({failed(0, 2), other}).kind == StallKind::kMismatch);
}

TEST_CASE("no deadline, or one of long ago, is no matter", "[coordinator]") {
    CHECK(judge_timeout({}).kind == StallKind::kNone);
    CHECK(judge_timeout({failed(0, 2, false), On(1).world(2)}).kind == StallKind::kNone);
    RankBoard old = failed(0, 2);
    old.view.operations.back().ended_ago = 11s;
    old.view.operations.back().started_ago = 40s;
    CHECK(judge_timeout({old, On(1).world(2)}).kind == StallKind::kNone);
}

TEST_CASE("what has been told is passed over, whoever failed of it; the next deadline counts", "[coordinator]") {
    On two = On(0).group("first", {{0, 3, 1}}).in("all_reduce", 22s).group("second", {{0, 3, 1}}).in("barrier", 21s);
    On one = On(1).group("first", {{0, 3, 1}}).in("all_reduce", 22s).group("second", {{0, 3, 1}});
    for (On* const here : {&two, &one}) {
        for (BoardOperation& operation : here->board.view.operations) {
            operation.ended_ago = operation.op == "barrier" ? 1s : here == &two ? 3s : 2s;
            operation.failed = operation.timed_out = true;
        }
    }
    const std::vector<RankBoard> boards{two, one, On(2).group("first", {{0, 3, 1}}).group("second", {{0, 3, 1}})};
    CHECK(judge_timeout(boards).group == "first");
    std::vector<std::string> asked;
    const auto tell = [&](const StallVerdict& verdict) {
        asked.push_back(verdict.group);
        return verdict.group != "first";
    };
    CHECK(judge_timeout(boards, kRecentTimeout, tell).group == "second");
    CHECK(asked == std::vector<std::string>{"first", "second"});
    CHECK(judge_timeout(boards, 2500ms).group == "second");  // of the first one's failure only the rest came since
    CHECK(judge_timeout(boards, 500ms).kind == StallKind::kNone);
    CHECK(judge_timeout(boards, kRecentTimeout, [](const StallVerdict&) { return false; }).kind == StallKind::kNone);
}

TEST_CASE("what ended because its group failed is no deadline of its own", "[coordinator]") {
    const auto lasted_1s = [](int rank) {
        RankBoard board = failed(rank, 3);
        BoardOperation& operation = board.view.operations.back();
        operation.queued_ago = operation.started_ago.emplace(3s);
        operation.waited_ago = 3s;
        return board;
    };
    On posted(0);  // a receive for later, and the collective
    posted.board = lasted_1s(0);
    posted.transfer("recv", GENERATE(1, 2), 0, 40s).only_posted();
    BoardOperation& receive = posted.board.view.operations.back();
    receive.ended_ago = GENERATE(1998ms, 1100ms);
    receive.failed = receive.timed_out = true;
    const std::vector<RankBoard> boards{posted, On(1).world(3).done(), lasted_1s(2)};
    std::vector<std::string> asked;
    const auto was_told = [&](const StallVerdict& verdict) {
        asked.push_back(verdict.text);
        return false;
    };
    CHECK(judge_timeout(boards, kRecentTimeout, was_told).kind == StallKind::kNone);
    REQUIRE(asked.size() == 1);
    CHECK_THAT(asked[0], StartsWith("LAGGING rank 1 (node n0): ") && Contains("peers wait in #2 all_reduce"));
    asked.clear();  // also when that deadline is of before
    CHECK(judge_timeout(boards, 1999ms, was_told).kind == StallKind::kNone);
    CHECK(asked.empty());
    // And when the group before it, of the same name, had failed, too.
    BoardOperation& before = posted.board.view.operations[0];
    before.failed = before.timed_out = true;
    before.ended_ago = 10s;
    before.started_ago = 12s;
    posted.board.view.operations[1].queued_ago = receive.queued_ago = 3s;
    CHECK(judge_timeout({posted, boards[1], boards[2]}, 5s, was_told).kind == StallKind::kNone);
    CHECK(asked.size() == 1);
}

TEST_CASE("what was called when its group had failed has its own deadline: steps at the store", "[coordinator]") {
    const auto twice = [](int rank) {
        On here = On(rank).group("world (store)", {{0, 3, 1}}).in("monitored_barrier", 4s).in("monitored_barrier", 2s);
        auto& operations = here.board.view.operations;
        const auto later = rank == 0 ? 0ms : 5ms;
        operations[0].ended_ago = 2s - later;
        operations[1].ended_ago = 1s - later;
        operations[0].queued_ago = 4s;
        operations[1].queued_ago = 2s - later;
        for (BoardOperation& operation : operations) operation.failed = operation.timed_out = true;
        return here;
    };
    const std::vector<RankBoard> boards{twice(0), twice(1), On(2).group("world (store)", {{0, 3, 1}})};
    std::vector<std::uint64_t> asked;
    const auto note = [&](const StallVerdict& verdict) {
        asked.push_back(verdict.seq);
        return false;
    };
    CHECK(judge_timeout(boards, kRecentTimeout, note).kind == StallKind::kNone);
    CHECK(asked == std::vector<std::uint64_t>{1, 2});
}

TEST_CASE("a thousand receives that fail together are judged once", "[coordinator]") {
    std::vector<RankBoard> boards;
    for (int rank = 0; rank < 1'000; ++rank) {
        On here = On(rank).world(1'000).done().transfer("recv", (rank + 1) % 1'000, 0, 5s);
        BoardOperation& receive = here.board.view.operations.back();
        receive.ended_ago = 2s - std::chrono::microseconds(rank);
        receive.failed = receive.timed_out = true;
        boards.push_back(here);
    }
    int asked = 0;
    CHECK(judge_timeout(boards, kRecentTimeout, [&](const StallVerdict&) { return ++asked == 0; }).kind ==
          StallKind::kNone);
    CHECK(asked == 1);
}

TEST_CASE("of many groups that fail only a few are judged: the daemon's other work waits", "[coordinator]") {
    On here(0);
    for (int i = 0; i < 20; ++i) {
        here.group("pair " + std::to_string(i), {{0, 2, 1}}).in("all_reduce", 5s);
        BoardOperation& operation = here.board.view.operations.back();
        operation.queued_ago = 5s;
        operation.ended_ago = 2s;
        operation.failed = operation.timed_out = true;
    }
    int asked = 0;
    (void)judge_timeout({here, On(1)}, kRecentTimeout, [&](const StallVerdict&) { return ++asked == 0; });
    CHECK(asked == 4);
}

TEST_CASE("a board that is turned back loses what came later, and its groups count as then", "[coordinator]") {
    On here = On(0).world(2).done().done();
    here.board.view.operations[1].queued_ago = 10s;
    here.board.view.operations[1].started_ago = 9s;
    here.board.view.operations[1].ended_ago = 3s;
    here.board.view.phase = "eval";
    here.board.view.phase_for = 4s;
    const BoardView then = rewind({here}, 5s).front().view;
    CHECK(then.groups[0] == BoardGroup{"world", 0, 2, {{0, 2, 1}}, true, 2, 2, 1});
    CHECK(then.operations[1].started_ago == 4s);
    CHECK_FALSE(then.operations[1].ended_ago);
    CHECK(then.phase == "");
    const BoardView before = rewind({here}, 10s).front().view;
    CHECK(before.operations.size() == 1);
    CHECK(before.groups[0].queued == 1);
    CHECK(before.groups[0].done == 1);
    CHECK(rewind({here}, 1h).front().view.operations.empty());
}

TEST_CASE("a message that nobody asks for is a mismatch, unless somebody else is late or it is no circle of two",
          "[coordinator]") {
    const On receiver = receives(1, 3, 0, 7);
    const RankBoard sender = On(0).world(3).in("barrier");
    const StallVerdict verdict = judge({sender, holds(receiver, 0, 4), On(2).world(3).in("barrier")}, 10s);
    CHECK(verdict.kind == StallKind::kMismatch);
    CHECK(
        verdict.text ==
        "MISMATCH: rank 1 (node n1) is in recv #1 f32[4] peer 0 tag 7 of group 'world' for 31.0 s, and nobody asks for "
        "what rank 0 (node n0) has sent it, send #3 f32[4] peer 1 tag 5: the one must send what the other receives, "
        "with one tag, unless rank 0 (node n0) is still to send it");
    // It says so also where each of the two waits for another message of the other.
    CHECK_THAT(judge({On(0).world(2).transfer("recv", 1, 9, 35s), holds(receives(1, 2, 0, 7), 0, 4)}, 10s).text,
               StartsWith("MISMATCH: rank 1 (node n1) is in recv #1 f32[4] peer 0 tag 7") &&
                   Contains("send #3 f32[4] peer 1 tag 5"));

    // Nothing like it, or from somebody else, or asked for since.
    CHECK(judge({sender, receiver, On(2).world(3).in("barrier")}, 10s).kind == StallKind::kCircle);
    CHECK(judge({sender, holds(receiver, 0, 5), On(2).world(3).in("barrier")}, 10s).kind == StallKind::kCircle);
    CHECK(judge({sender, holds(receiver, 2, 4), On(2).world(3).in("barrier")}, 10s).kind == StallKind::kCircle);
    On claimed = holds(receiver, 0, 4);
    claimed.board.view.operations.back().ended_ago = 29s;
    CHECK(judge({sender, claimed, On(2).world(3).in("barrier")}, 10s).kind == StallKind::kCircle);

    // Whoever is late may be why the rest has not been sent.
    CHECK_THAT(judge({sender, holds(receiver, 0, 4), On(2).world(3).phase("loading")}, 10s).text,
               StartsWith("LAGGING rank 2"));
    CHECK_THAT(judge({On(0).world(3).phase("loading"), holds(receiver, 0, 4), On(2).world(3)}, 10s).text,
               StartsWith("LAGGING rank 0"));
    CHECK_THAT(judge({On(0).world(3).process("exited with code 0, 4.2 s ago", true), holds(receiver, 0, 4)}, 10s).text,
               StartsWith("DEAD rank 0"));
}

TEST_CASE("a circle of three stays one, though each holds what the next has sent ahead, as a pipeline does",
          "[coordinator]") {
    std::vector<RankBoard> boards;
    for (int rank = 0; rank < 3; ++rank)
        boards.push_back(holds(receives(rank, 3, (rank + 1) % 3, 7), (rank + 1) % 3, 4));
    CHECK(
        judge(boards, 10s).text ==
        "A CIRCLE: rank 0 (node n1) waits in recv #1 f32[4] peer 1 tag 7 of group 'world' for 31.0 s for rank 1 (node "
        "n1), which waits in recv #1 f32[4] peer 2 tag 7 of group 'world': all ranks must call them in one order; "
        "nobody asks for what rank 1 (node n1) has sent rank 0, send #3 f32[4] peer 0 tag 5");
    // Only one of them holds something: it is told from there.
    boards[0] = receives(0, 3, 1, 7);
    boards[1] = receives(1, 3, 2, 7);
    CHECK_THAT(judge(boards, 10s).text, StartsWith("A CIRCLE: rank 2 (node n1) waits in ") &&
                                            EndsWith("rank 0 (node n1) has sent rank 2, send #3 f32[4] peer 2 tag 5"));
    // Who waits for the two others waits for the receiver, too.
    boards[0] = On(0).host("n1").world(3).in("barrier");
    CHECK_THAT(judge(boards, 10s).text,
               StartsWith("MISMATCH: rank 2 ") && EndsWith("unless rank 0 (node n1) is still to send it"));
}
