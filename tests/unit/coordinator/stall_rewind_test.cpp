// Who kept those waiting who failed by a deadline, from boards that were read when all was over.
#include "rendezvous/coordinator/stall_rewind.hpp"
#include "tests/catch.hpp"
#include "tests/unit/coordinator/stall_boards.hpp"

using namespace ddprun;
using namespace ddprun::coordinator;
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

}  // namespace

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
    CHECK(judge_timeout(boards, 2500ms).group == "first");
    CHECK(judge_timeout(boards, 500ms).kind == StallKind::kNone);
    CHECK(judge_timeout(boards, kRecentTimeout, [](const StallVerdict&) { return false; }).kind == StallKind::kNone);
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
