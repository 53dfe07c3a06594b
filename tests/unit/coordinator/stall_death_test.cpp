// The one line about a worker that was killed or crashed: boards in, words out.
#include <string>
#include <vector>

#include "rendezvous/coordinator/messages_board.hpp"
#include "rendezvous/coordinator/stall_death.hpp"
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
