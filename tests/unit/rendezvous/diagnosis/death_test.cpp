// The one line about a worker that was killed, crashed, or ended of an error: boards in, words out.
#include <string>
#include <vector>

#include "rendezvous/coordinator/messages_board.hpp"
#include "rendezvous/coordinator/stall_death.hpp"
#include "rendezvous/coordinator/stall_error.hpp"
#include "rendezvous/coordinator/stall_hints.hpp"
#include "tests/catch.hpp"
#include "tests/unit/coordinator/stall_boards.hpp"

using namespace ddprun;
using namespace ddprun::coordinator;
using Catch::Contains;

namespace {

constexpr int kDead = 3;

FailureReport killed(const RankBoard& board, ExitStatus status = {ExitStatus::Kind::kSignaled, 9, false}) {
    FailureReport failure;
    failure.rank = board.rank;
    failure.host = board.host;
    failure.pid = board.pid;
    failure.status = status;
    failure.activity = describe_activity(board.view);
    return failure;
}

On dead() { return On(kDead).host("b").world(4).done(); }

/// Its newest operation has failed since.
On failed(On peer, std::chrono::nanoseconds ago) {
    BoardOperation& operation = peer.board.view.operations.back();
    operation.ended_ago = ago;
    operation.failed = true;
    return peer;
}

RankBoard ended(RankBoard board, std::chrono::nanoseconds ago = 50ms) {
    board.ended = true;
    board.ended_ago = ago;
    return board;
}

}  // namespace

TEST_CASE("a dead worker is told with what it was in, and with who waited for it, whether they have failed or not",
          "[coordinator]") {
    On in = dead().in("all_reduce", 2s);
    in.board.view.operations.back().tag = "bucket 3";
    in.phase("eval");
    const RankBoard board = ended(in);
    std::vector<RankBoard> boards{failed(On(0).world(4).done().in(), 49ms), failed(On(1).world(4).done().in(), 900ms),
                                  On(2).host("b").world(4).done().in(), board};
    const DeathVerdict verdict = judge_death(boards, killed(board));
    CHECK(verdict.text ==
          "DEAD rank 3 (node b, killed by SIGKILL): in #2 all_reduce sum f32[4] 'bucket 3' of group 'world' for 2.0 s; "
          "in "
          "phase 'eval'; ranks 0-1 (node n0), 2 (node b) waited for it there");
    CHECK(verdict.text.ends_with("): " + verdict.detail));
}

TEST_CASE("a small operation whose time is that of the last tick is newer than the large one before it",
          "[coordinator]") {
    On on = On(0).world(4).done().done();
    on.board.view.operations[0].ended_ago = 1ms;
    on.board.view.operations[1].ended_ago = 5ms;
    CHECK_THAT(describe_activity(on.board.view), Catch::StartsWith("had finished #2 all_reduce"));
    CHECK(describe_activity(On(0).group("world (init)", {{0, 4, 1}}).done("init_from_env").world(4).board.view) ==
          "had done no collective");
    On split =
        On(0).group("world (store)", {{0, 4, 1}}).done("split").world(4).done();  // and its small one was called later
    split.board.view.operations[0].ended_ago = 2000ms;
    split.board.view.operations[1].ended_ago = 2003ms;
    CHECK_THAT(describe_activity(split.board.view), Catch::StartsWith("had finished #1 all_reduce"));
    split.board.view.operations[1].ended_ago = 2030ms;  // no tick is so long
    CHECK_THAT(describe_activity(split.board.view), Catch::StartsWith("had finished #1 split"));
}

TEST_CASE("one that died while it computed is told with what it had finished, and what the others waited in",
          "[coordinator]") {
    const RankBoard board = ended(dead());
    FailureReport failure = killed(board);
    failure.oom = OomKill::kYes;
    const RankBoard computes = On(2).world(4).done();
    const RankBoard only_posted = On(1).world(4).done().in().only_posted();
    CHECK(
        judge_death({On(0).world(4).done().in(), only_posted, computes, board}, failure).text ==
        "DEAD rank 3 (node b, killed by SIGKILL by the kernel's out-of-memory killer): had finished #1 all_reduce sum "
        "f32[4] of group 'world', 38.0 s before; rank 0 (node n0) waited for it in #2 all_reduce sum f32[4] of group "
        "'world'");
    CHECK_THAT(judge_death({only_posted, computes, board}, failure).text, Contains("; nobody waited for it"));
    CHECK_THAT(judge_death({only_posted, On(2), board}, failure).text, Contains("; nobody waited for it"));
    RankBoard silent = On(2);
    silent.view = {};
    CHECK_THAT(judge_death({only_posted, silent, board}, failure).text, !Contains("waited"));
    CHECK_THAT(judge_death({board}, failure).text, !Contains("waited"));  // it was alone
}

TEST_CASE("who had failed long before, or is in something without the dead one, did not wait for it", "[coordinator]") {
    const RankBoard board = ended(dead());
    const std::vector<RankBoard> boards{
        failed(On(0).world(4).done().in(), 3s),                          // long before
        On(1).world(4).done().group("pair", {{1, 2, 1}}).in(),           // of ranks 1 and 2
        On(2).world(4).in(),                                             // in one that the dead one had done
        On(4).group("odd", {{1, 4, 2}}).in("barrier").in("all_reduce"),  // ranks 1, 3, 5, 7: this one did
        board,
    };
    CHECK_THAT(judge_death(boards, killed(board)).text,
               Contains("; rank 4 (node n0) waited for it in #1 barrier of group 'odd'"));
}

TEST_CASE("a send or receive waits for the dead one if that is its other side", "[coordinator]") {
    const RankBoard board = ended(dead());
    CHECK_THAT(
        judge_death({On(0).world(4).transfer("recv", 3, 7), On(1).world(4).transfer("recv", 2), board}, killed(board))
            .text,
        Contains("; rank 0 (node n0) waited for it in recv #1 peer 3 tag 7 of group 'world'"));
    CHECK_THAT(
        judge_death(
            {On(0).world(4).transfer("recv", 3, 7), On(1).world(4).done().in(), On(2).world(4).done().in(), board},
            killed(board))
            .text,
        Contains("; ranks 1-2 (node n0) waited for it in #2 all_reduce sum f32[4] of group 'world', rank 0 (node n0) "
                 "elsewhere"));
}

TEST_CASE("who failed because an operation had failed kept nobody waiting, unless a signal ended it", "[coordinator]") {
    const RankBoard board = ended(failed(dead().in(), 60ms));
    const std::vector<RankBoard> boards{On(0).world(4).done().in(), board};
    CHECK(judge_death(boards, killed(board, {ExitStatus::Kind::kExited, 1, false})).text == "");
    CHECK_THAT(judge_death(boards, killed(board)).text, Contains("killed by SIGKILL): failed in #2"));
    CHECK(judge_death(boards, killed(board, {ExitStatus::Kind::kSignaled, 6, false})).text == "");  // it caught nothing
    const RankBoard crashed = ended(dead());
    CHECK_THAT(judge_death({boards[0], crashed}, killed(crashed, {ExitStatus::Kind::kExited, 1, false})).text,
               Contains("DEAD rank 3 (node b, exited with code 1): had finished #1"));
    FailureReport victim = killed(crashed, {ExitStatus::Kind::kExited, 1, false});
    victim.last_lines = {"lost rank 2 (host c): its process ended"};
    CHECK(judge_death({boards[0], crashed}, victim).text == "");
    FailureReport without_board = killed(crashed);
    without_board.activity = "";
    CHECK(judge_death({boards[0], crashed}, without_board).text == "");
    // Its agent did not answer, but has reported its end.
    CHECK_THAT(judge_death({boards[0]}, killed(crashed)).text, Contains("; rank 0 (node n0) waited for it in #2"));
}

namespace {

constexpr ExitStatus kError{ExitStatus::Kind::kExited, 1, false};

std::string error_line(const std::vector<RankBoard>& boards, const FailureReport& dead) {
    return judge_error(boards, dead).text;
}

/// Its newest operation has failed, for others called another one.
On mismatched(On peer, std::chrono::nanoseconds ago = 60ms) {
    peer = failed(std::move(peer), ago);
    peer.board.view.operations.back().mismatch = true;
    return peer;
}

}  // namespace

TEST_CASE("who called what is told of a mismatch that was found at once, however the program ended of it",
          "[coordinator]") {
    On other = mismatched(dead().in("broadcast"));
    other.board.view.operations.back().tag = "weights";
    const RankBoard board = ended(other);
    std::vector<RankBoard> boards{ended(mismatched(On(0).world(4).done().in())),
                                  ended(mismatched(On(1).world(4).done().in())), On(2).host("b").world(4).done(),
                                  board};
    const std::string line =
        "MISMATCH at #2 of group 'world': ranks 0-1 (node n0) all_reduce sum f32[4], rank 3 (node b) broadcast "
        "'weights'";
    CHECK(error_line(boards, killed(board, kError)) == line);
    CHECK(error_line(boards, killed(boards[0], kError)) == line);  // whoever is taken for the cause
    CHECK(error_line(boards, killed(board, {ExitStatus::Kind::kSignaled, 6, false})) == line);
    CHECK(error_line(boards, killed(boards[2])) == "");  // killed by SIGKILL, of something else
    for (RankBoard& old : boards)
        for (BoardOperation& operation : old.view.operations)
            if (operation.mismatch) operation.ended_ago = 11s;
    CHECK(error_line(boards, killed(board, kError)) == "");  // the program has survived it
}

TEST_CASE("of a mismatch in counts or steps alone the odd rank is named, and of several the first", "[coordinator]") {
    const auto gathering = [](int rank, std::uint64_t fingerprint, const std::string& op) {
        On here = On(rank).world(3).in(op);
        here.board.view.operations.back().fingerprint = fingerprint;
        // Refused, for the group has failed: all of them called that.
        return RankBoard(mismatched(mismatched(here).in(), 50ms));
    };
    std::vector<RankBoard> boards;
    for (const int rank : {0, 1, 2}) boards.push_back(gathering(rank, rank == 1 ? 7 : 8, "all_gather_v"));
    CHECK(
        error_line(boards, killed(boards[0], kError)) ==
        "MISMATCH at #1 of group 'world': ranks 0, 2 (node n0) all_gather_v with one list of counts, rank 1 (node n0) "
        "all_gather_v with another list of counts");
    boards.clear();
    for (const int rank : {0, 1, 2}) boards.push_back(gathering(rank, rank == 2 ? 0 : 8, "barrier"));
    CHECK(
        error_line(boards, killed(boards[0], kError)) ==
        "MISMATCH at #1 of group 'world': ranks 0-1 (node n0) barrier of step 8, rank 2 (node n0) barrier of no step");
}

TEST_CASE("who gave a group up is named with the reason, and with who was in it", "[coordinator]") {
    On aborter = dead().phase("eval");
    aborter.board.view.groups[0].aborted_ago = 80ms;
    aborter.board.view.groups[0].abort_reason = "loss is NaN";
    const RankBoard board = ended(aborter);
    const RankBoard peer = ended(failed(On(0).world(4).done().in(), 70ms));
    const std::vector<RankBoard> boards{peer, On(1).world(4).done(), board};
    const std::string line =
        "ABORTED group 'world': rank 3 (node b) gave it up: 'loss is NaN'; rank 0 (node n0) was "
        "in #2 all_reduce sum f32[4]; rank 3 in phase 'eval'";
    CHECK(error_line(boards, killed(board, kError)) == line);
    CHECK(error_line(boards, killed(board)) == line);         // by what it did next
    CHECK(error_line(boards, killed(peer, kError)) == line);  // who failed of it
    CHECK(error_line(boards, killed(peer)) == "");            // killed by SIGKILL
    // Who had ended before is why it was given up, and so is an operation that had failed.
    RankBoard before = ended(On(2).host("b").world(4).done(), 90ms);
    CHECK(error_line({peer, board, before}, killed(before, kError)) == "");
    RankBoard of_another_error = ended(failed(aborter.in(), 81ms));
    CHECK(error_line({peer, of_another_error}, killed(of_another_error, kError)) == "");
}

TEST_CASE("who goes on after it has given a group up, and is killed of something else, has not ended of that",
          "[coordinator]") {
    On aborter = dead();
    aborter.board.view.groups[0].aborted_ago = 8s;
    aborter.board.view.groups[0].abort_reason = "the evaluation is over";
    const RankBoard board = ended(aborter);
    const std::vector<RankBoard> boards{On(0).world(4).done().in(), board};
    CHECK(error_line(boards, killed(board)) == "");
    CHECK_THAT(judge_death(boards, killed(board)).text, Contains("; rank 0 (node n0) waited for it"));
    CHECK_THAT(error_line(boards, killed(board, kError)), Catch::StartsWith("ABORTED group 'world'"));
}

TEST_CASE("who is no member of a group, or has failed of none of its operations, has not ended of its error",
          "[coordinator]") {
    On aborter = On(1).world(4).done().group("eval", {{0, 2, 1}}).done();
    aborter.board.view.groups[1].aborted_ago = 80ms;
    aborter.board.view.groups[1].abort_reason = "loss is NaN";
    const RankBoard peer = ended(failed(On(0).world(4).done().group("eval", {{0, 2, 1}}).done().in(), 70ms));
    const RankBoard calm = ended(On(0).world(4).done().group("eval", {{0, 2, 1}}).done());
    const RankBoard stranger = ended(failed(On(3).world(4).done().in(), 70ms));
    CHECK_THAT(error_line({peer, aborter, stranger}, killed(peer, kError)), Catch::StartsWith("ABORTED group 'eval'"));
    CHECK(error_line({peer, aborter, stranger}, killed(stranger, kError)) == "");
    CHECK(error_line({calm, aborter, stranger}, killed(calm, kError)) == "");

    On first = mismatched(On(0).world(4).done().group("eval", {{0, 2, 1}}).in());
    const RankBoard second = mismatched(On(1).world(4).done().group("eval", {{0, 2, 1}}).in("barrier"));
    CHECK_THAT(error_line({first, second, stranger}, killed(second, kError)),
               Catch::StartsWith("MISMATCH at #1 of group 'eval'"));
    CHECK(error_line({first, second, stranger}, killed(stranger, kError)) == "");
    first.board.rank = Rank{3};  // of a member whose board was not seen the others' lists tell
    CHECK_THAT(error_line({first, second}, killed(RankBoard(On(0)), kError)), Catch::StartsWith("MISMATCH at #1"));
}

TEST_CASE("a send that its receive did not fit is told with both, whoever is taken for the cause", "[coordinator]") {
    On receiver = mismatched(On(1).host("b").world(3).transfer("recv", 0, 5));
    receiver.board.view.groups[0].rank = 1;
    receiver.board.view.operations.back().dtype = "f32";
    receiver.board.view.operations.back().count = 5;
    BoardOperation message = receiver.board.view.operations.back();
    message.op = "arrived";
    message.p2p_seq = 7;
    message.count = 4;
    message.tag = "halo";
    receiver.board.view.operations.push_back(message);
    // Whoever is told of it has the same error, in whatever it is in.
    const std::vector<RankBoard> boards{ended(mismatched(On(0).world(3).in())), ended(receiver),
                                        ended(mismatched(On(2).world(3).in(), 50ms))};
    const std::string line =
        "MISMATCH of a send and its receive in group 'world': rank 0 (node n0) send #7 f32[4] peer 1 tag 5 'halo', "
        "rank 1 (node b) recv #1 f32[5] peer 0 tag 5";
    for (const RankBoard& board : boards) CHECK(error_line(boards, killed(board, kError)) == line);
    CHECK(error_line(boards, killed(boards[1])) == "");                 // killed by SIGKILL, of something else
    CHECK(error_line(boards, killed(RankBoard(On(3)), kError)) == "");  // no member
    receiver.board.view.operations.back().ended_ago = 11s;
    CHECK(error_line({ended(receiver), boards[2]}, killed(boards[2], kError)) == "");  // the program has survived it
}

TEST_CASE("who has let go of a group as if all were done is named when a peer fails of that", "[coordinator]") {
    On leaver = On(1).host("b").world(4).done();
    leaver.board.view.groups[0].left_ago = 90ms;
    leaver.process("exited with code 0, 12 ms ago", true);
    const RankBoard gone = ended(leaver);
    const RankBoard victim = ended(failed(On(0).world(4).done().in(), 80ms));
    // The first one had taken this one along, out of something that the leaver had done.
    const RankBoard second = ended(failed(On(2).world(4).in(), 70ms));
    const RankBoard third = failed(On(3).world(4).done().in(), 75ms);
    const std::string line =
        "LEFT rank 1 (node b, exited with code 0): let go of group 'world' after #1 all_reduce sum f32[4]; ranks 0, 3 "
        "(node n0) were in #2 all_reduce sum f32[4]";
    CHECK(error_line({victim, gone, second, third}, killed(victim, kError)) == line);
    CHECK(error_line({victim, gone, second, third}, killed(second, kError)) == line);
    CHECK(error_line({victim, gone, second, third}, killed(victim)) == "");  // killed by SIGKILL
    On without_a_word = leaver;                                              // it has ended without letting go
    without_a_word.board.view.groups[0].left_ago.reset();
    CHECK(error_line({victim, ended(without_a_word, 85ms), third}, killed(victim, kError)) == line);
    without_a_word.process("killed by SIGKILL, 12 ms ago", true);
    CHECK(error_line({victim, ended(without_a_word, 85ms), third}, killed(victim, kError)) == "");

    const RankBoard receiver = ended(failed(On(0).world(4).done().transfer("recv", 1, 7), 80ms));
    CHECK_THAT(error_line({receiver, gone}, killed(receiver, kError)),
               Catch::EndsWith("; rank 0 (node n0) was in recv #1 peer 1 tag 7"));
    const RankBoard of_another = ended(failed(On(0).world(4).done().transfer("recv", 2, 7), 80ms));
    CHECK(error_line({of_another, gone}, killed(of_another, kError)) == "");
}

TEST_CASE("of several who had left the one that was needed is named, not the one that left first", "[coordinator]") {
    On early = On(1).host("b").world(4).done().done();  // all that the others have failed in it had done
    early.board.view.groups[0].left_ago = 300ms;
    On needed = On(2).host("b").world(4).done();
    needed.board.view.groups[0].left_ago = 90ms;
    const RankBoard victim = ended(failed(On(0).world(4).done().in(), 80ms));
    const RankBoard other = failed(On(3).world(4).done().in(), 75ms);
    CHECK(error_line({victim, early, needed, other}, killed(victim, kError)) ==
          "LEFT rank 2 (node b): let go of group 'world' after #1 all_reduce sum f32[4]; ranks 0, 3 (node n0) were in "
          "#2 all_reduce sum f32[4]");
    // Of two that were needed, the one that left first.
    On first = On(1).host("b").world(4).done();
    first.board.view.groups[0].left_ago = 300ms;
    CHECK_THAT(error_line({victim, first, needed, other}, killed(victim, kError)),
               Catch::StartsWith("LEFT rank 1 (node b): "));
}

TEST_CASE("who has let go of a group with work in flight is told with that", "[coordinator]") {
    const RankBoard victim = ended(failed(On(0).world(3).done().in(), 80ms));
    On leaver = failed(On(1).host("b").world(3).done().in(), 89ms);
    leaver.board.view.groups[0].left_ago = 90ms;
    CHECK(error_line({victim, leaver}, killed(victim, kError)) ==
          "LEFT rank 1 (node b): let go of group 'world' after #1 all_reduce sum f32[4], with #2 all_reduce sum f32[4] "
          "in flight; rank 0 (node n0) was in #2 all_reduce sum f32[4]");
    CHECK(judge_error({victim, leaver}, killed(victim, kError)).hint == kInFlightHint);
    // What it had given its part to is no loss: the peers have failed of what came after.
    On later = failed(On(0).world(4).done().done().in(), 80ms);
    const RankBoard beyond = ended(later);
    leaver.board.view.groups[0].size = beyond.view.groups[0].size;
    leaver.board.view.groups[0].members = beyond.view.groups[0].members;
    const auto verdict = judge_error({beyond, leaver}, killed(beyond, kError));
    CHECK_THAT(verdict.text, Catch::StartsWith("LEFT rank 1 ") && !Catch::Contains("in flight"));
    CHECK(verdict.hint == kStepsHint);
    leaver.board.view.groups[0].size = victim.view.groups[0].size;
    leaver.board.view.groups[0].members = victim.view.groups[0].members;
    leaver.board.view.operations.back().ended_ago = 95ms;  // it had failed before
    CHECK(error_line({victim, leaver}, killed(victim, kError)) == "");
}

TEST_CASE("who left for an error, or later, or was needed no more, is not what a peer has failed of", "[coordinator]") {
    const RankBoard victim = ended(failed(On(0).world(4).done().in(), 80ms));
    const auto left = [](On peer, std::chrono::nanoseconds ago) {
        peer.board.view.groups[0].left_ago = ago;
        return peer;
    };
    const auto line = [&](const On& peer) { return error_line({victim, peer}, killed(victim, kError)); };
    const On peer = On(1).world(4).done();
    CHECK(line(left(peer, 90ms)) != "");
    CHECK(line(left(peer, 11s)) == "");  // so long ago that nothing of it is left
    On told = left(peer, 90ms);
    told.board.process_before = "running";
    told.board.process_before_ago = 60ms;
    CHECK(line(told) != "");
    told.board.process_before_ago = 95ms;
    CHECK(line(told) == "");  // its agent had told it to
    CHECK(line(left(failed(On(1).world(4).done().in(), 95ms), 90ms)) == "");
    CHECK(line(left(On(1).world(4).done().done(), 90ms)) == "");
    On by_exception = left(peer, 90ms);
    by_exception.board.view.groups[0].left_by_exception = true;
    CHECK(line(by_exception) == "");
    CHECK(error_line({ended(failed(On(0).world(4).done().in(), 2s)), left(peer, 90ms)}, killed(victim, kError)) == "");
    RankBoard late = victim;
    late.view.operations.back().timed_out = true;  // a deadline has its own line
    CHECK(error_line({late, left(peer, 90ms)}, killed(late, kError)) == "");
}
