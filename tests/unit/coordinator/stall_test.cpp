// Who keeps whom waiting: boards in, one line out.
#include <chrono>
#include <numeric>
#include <string>
#include <vector>

#include "rendezvous/coordinator/stall.hpp"
#include "tests/catch.hpp"

using namespace ddprun;
using namespace ddprun::coordinator;
using namespace std::chrono_literals;
using Catch::Contains;
using Catch::StartsWith;

namespace {

constexpr auto kPatience = 10s;

/// A rank of node n0 that is a member of groups and calls operations in them.
class On {
public:
    explicit On(int rank) {
        board.rank = Rank{rank};
        board.host = "n0";
        board.pid = 1000 + rank;
        board.process = "running";
        board.view.written = true;
    }
    On& group(const std::string& name, std::vector<RankRun> members) {
        BoardGroup& group = board.view.groups.emplace_back();
        group.name = name;
        group.members = std::move(members);
        group.size = 0;
        for (const RankRun& run : group.members) group.size += run.count;
        return *this;
    }
    On& world(int size) { return group("world", {{0, size, 1}}); }
    /// In the newest group: the operation that follows.
    BoardOperation& call(const std::string& op) {
        BoardGroup& group = board.view.groups.back();
        BoardOperation& operation = board.view.operations.emplace_back();
        operation.id = board.view.operations.size();
        operation.group = static_cast<int>(board.view.groups.size()) - 1;
        operation.seq = ++group.queued;
        operation.op = op;
        operation.queued_ago = 40s;
        if (op == "all_reduce") {
            operation.reduce = "sum";
            operation.dtype = "f32";
            operation.count = 4;
        }
        return operation;
    }
    On& done(const std::string& op = "all_reduce") {
        BoardOperation& operation = call(op);
        operation.started_ago = 39s;
        operation.ended_ago = 38s;
        board.view.groups.back().started = board.view.groups.back().done = operation.seq;
        return *this;
    }
    On& in(const std::string& op = "all_reduce", std::chrono::nanoseconds since = 31s) {
        BoardOperation& operation = call(op);
        operation.started_ago = since;
        board.view.groups.back().started = operation.seq;
        return *this;
    }
    On& phase(const std::string& text) {
        board.view.phase = text;
        return *this;
    }
    On& process(const std::string& text, bool ended = false) {
        board.process = text;
        board.ended = ended;
        return *this;
    }
    /// A send or receive of the newest group.
    On& transfer(const std::string& op, int peer, std::int64_t tag = 0, std::chrono::nanoseconds since = 31s) {
        BoardOperation& operation = board.view.operations.emplace_back();
        operation.id = board.view.operations.size();
        operation.group = static_cast<int>(board.view.groups.size()) - 1;
        operation.p2p_seq = ++transfers;
        operation.op = op;
        operation.peer = peer;
        operation.transfer_tag = tag;
        operation.queued_ago = since;
        operation.started_ago = since;
        return *this;
    }
    operator RankBoard() const { return board; }  // NOLINT: a builder

    RankBoard board;
    std::uint64_t transfers = 0;
};

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
}

TEST_CASE("ranks that called different operations are a mismatch, also when the counts alone differ", "[coordinator]") {
    std::vector<RankBoard> boards;
    for (int rank = 0; rank < 7; ++rank) boards.push_back(On(rank).world(8).done().in());
    boards.push_back(On(7).world(8).done().in("broadcast"));
    boards.back().view.operations.back().dtype = "i64";
    boards.back().view.operations.back().count = 1;
    boards.back().view.operations.back().tag = "of no matter";
    const StallVerdict verdict = judge(boards, kPatience);
    CHECK(verdict.kind == StallKind::kMismatch);
    CHECK(verdict.text == "MISMATCH at #2 of group 'world': ranks 0-6 all_reduce sum f32[4], rank 7 broadcast i64[1]");

    std::vector<RankBoard> counts{On(0).world(2).in("gather_v"), On(1).world(2).in("gather_v")};
    counts[1].view.operations.back().fingerprint = 1;
    CHECK_THAT(judge(counts, kPatience).text, StartsWith("MISMATCH") && Contains("with different counts"));
}

TEST_CASE("all have come and nothing moves: the transport", "[coordinator]") {
    const StallVerdict verdict =
        judge({On(0).world(3).done().in(), On(1).world(3).done().done(), On(2).world(3).done().in()}, kPatience);
    CHECK(verdict.kind == StallKind::kAllPresent);
    CHECK_THAT(verdict.text, StartsWith("ALL PRESENT but no progress: transport") && Contains("(ranks 0, 2 in #2"));
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
    CHECK_THAT(verdict.text, StartsWith("A CIRCLE: rank ") && Contains("waits in another operation"));
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
    CHECK_THAT(verdict.text, StartsWith("WAITING for ranks 1-2, which have shown no board"));
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
    CHECK_THAT(both.text, StartsWith("MISMATCH: rank ") && Contains("recv #1 peer 1 tag 0"));
    const StallVerdict tags =
        judge({On(0).world(3).transfer("send", 1, 1), On(1).world(3).transfer("recv", 0, 2)}, kPatience);
    CHECK(tags.kind == StallKind::kMismatch);
    CHECK_THAT(tags.text, Contains("tag 1") && Contains("tag 2"));
    const StallVerdict fit = judge({On(0).world(3).transfer("send", 1, 1), On(1).world(3).transfer("recv", 0, 1),
                                    On(2).world(3).transfer("recv", 1, 5, 12s)},
                                   kPatience);
    CHECK(fit.kind == StallKind::kAllPresent);
    CHECK_THAT(fit.text, Contains("(ranks 0-1 in send #1"));
}

TEST_CASE("who has waited for less than the patience waits all the same", "[coordinator]") {
    const RankBoard first = On(0).group("pair", {{1, 2, 1}}).world(3).in();
    const RankBoard second = On(1).world(3).group("pair", {{1, 2, 1}}).in("barrier", 6s);
    const RankBoard third = On(2).world(3).group("pair", {{1, 2, 1}}).phase("loading");
    CHECK_THAT(judge({first, second, third}, kPatience).text, StartsWith("LAGGING rank 2"));
}

TEST_CASE("a receive that was posted for later makes nobody a culprit, and excuses nobody", "[coordinator]") {
    // Rank 1 has posted a receive and hangs in its data loader.
    const StallVerdict hangs =
        judge({On(0).world(2).in(), On(1).world(2).transfer("recv", 0, 0, 40s).phase("loading")}, kPatience);
    CHECK(hangs.kind == StallKind::kLagging);
    CHECK_THAT(hangs.text, StartsWith("LAGGING rank 1") && Contains("recv #1 peer 0") && Contains("'loading'"));
    On well = On(1).world(2).transfer("recv", 0, 0, 40s).done();
    well.board.view.operations.back().queued_ago = 2s;
    CHECK(judge({On(0).world(2).done(), well}, kPatience).kind == StallKind::kNone);
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
