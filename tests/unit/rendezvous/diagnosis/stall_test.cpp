// Which ranks keep which others waiting: flight records in, one line out.
#include <chrono>
#include <numeric>
#include <string>
#include <vector>

#include "rendezvous/diagnosis/stall.hpp"
#include "tests/catch.hpp"
#include "tests/unit/rendezvous/diagnosis/stall_records.hpp"

using namespace ddprun;
using namespace ddprun::diagnosis;
using namespace std::chrono_literals;
using Catch::Contains;
using Catch::EndsWith;
using Catch::StartsWith;

TEST_CASE("no rank is stuck: every operation is done, or in progress", "[coordinator]") {
    CHECK(diagnose({}, kMinWait).kind == StallKind::kNone);
    CHECK(diagnose({On(0).world(2).done(), On(1).world(2).done()}, kMinWait).kind == StallKind::kNone);
    CHECK(diagnose({On(0).world(2).in("all_reduce", 2s), On(1).world(2).done()}, kMinWait).kind == StallKind::kNone);
    CHECK(diagnose({On(0).world(1)}, kMinWait).text == "");
}

TEST_CASE("the rank that has not arrived is named, with what it finished last and its phase", "[coordinator]") {
    std::vector<RankRecord> records;
    for (int rank = 0; rank < 3; ++rank) records.push_back(On(rank).world(4).done().in());
    On late = On(3).world(4).done().phase("eval");
    late.record.host = "n1";
    late.record.view.operations.back().tag = "bucket 3";
    records.push_back(late);
    const StallVerdict verdict = diagnose(records, kMinWait);
    CHECK(verdict.kind == StallKind::kLagging);
    CHECK(
        verdict.text ==
        "LAGGING rank 3 (node n1): last finished #1 all_reduce sum f32[4] 'bucket 3', peers wait in #2 all_reduce sum "
        "f32[4] of group 'world' for 31.0 s; in phase 'eval'");
}

TEST_CASE(
    "several ranks that have not arrived are folded into ranges, a group of one rank more or less does not matter",
    "[coordinator]") {
    std::vector<RankRecord> records;
    for (int rank = 0; rank < 1000; ++rank)
        records.push_back(rank % 3 == 0 ? On(rank).world(1000).done().in() : On(rank).world(1000).done());
    CHECK_THAT(diagnose(records, kMinWait).text,
               StartsWith("LAGGING ranks 1-2, 4-5, 7-8, 10-11, 13-14, 16-17, 19-20, 22-23, … (666 in all) (node n0): "
                          "rank 1 last finished #1"));
}

TEST_CASE("a process that is stopped is the cause, whether it has arrived at the operation or not", "[coordinator]") {
    const StallVerdict absent =
        diagnose({On(0).world(2).in(), On(1).world(2).process(ProcessState::kStopped)}, kMinWait);
    CHECK(absent.kind == StallKind::kLagging);
    CHECK_THAT(absent.text, StartsWith("LAGGING rank 1") &&
                                Contains("has completed no operation of the group, rank 0 waits in") &&
                                Contains("its process 1001 is stopped (a signal, a debugger): kill -CONT 1001"));
    const StallVerdict inside =
        diagnose({On(0).world(2).in(), On(1).world(2).in().process(ProcessState::kStopped)}, kMinWait);
    CHECK_THAT(inside.text, StartsWith("LAGGING rank 1") && Contains("is stopped"));
    CHECK_THAT(diagnose({On(0).world(2).in(), On(1).world(2).process(ProcessState::kInKernel)}, kMinWait).text,
               Contains("its process 1001 is in the kernel"));
}

TEST_CASE("peers of one that has ended wait for the dead", "[coordinator]") {
    const StallVerdict verdict =
        diagnose({On(0).world(2).done().in(), On(1).world(2).done().ended(kExited0)}, kMinWait);
    CHECK(verdict.kind == StallKind::kDead);
    CHECK(verdict.text ==
          "DEAD rank 1 (node n0, exited with code 0, 4.2 s ago): peers wait in #2 all_reduce sum f32[4] "
          "of group 'world' for 31.0 s");
    CHECK_THAT(verdict.hint, StartsWith("Give all ranks the same number of steps"));
    RankRecord never_joined = On(1).ended(kExited0);
    never_joined.view = {};
    const StallVerdict joining = diagnose({On(0).world(2).in("init_from_env"), never_joined}, kMinWait);
    CHECK_THAT(joining.text, StartsWith("DEAD rank 1") && Contains("peers wait in #1 init_from_env of group 'world'"));
    CHECK(joining.hint == "All ranks must call ddp::init_from_env()");
}

TEST_CASE("ranks that called different operations are a mismatch, also when the counts alone differ", "[coordinator]") {
    std::vector<RankRecord> records;
    for (int rank = 0; rank < 7; ++rank) records.push_back(On(rank).world(8).done().in());
    for (RankRecord& record : records) record.view.operations.back().tag = "bucket 3";
    records.push_back(On(7).host("n1").world(8).done().in("broadcast"));
    records.back().view.operations.back().dtype = "i64";
    records.back().view.operations.back().count = 1;
    const StallVerdict verdict = diagnose(records, kMinWait);
    CHECK(verdict.kind == StallKind::kMismatch);
    CHECK(verdict.text ==
          "MISMATCH at #2 of group 'world': ranks 0-6 (node n0) all_reduce sum f32[4] 'bucket 3', rank 7 (node n1) "
          "broadcast i64[1]");
    records[2].view.operations.back().tag = "another";  // which ranks do not compare
    CHECK_THAT(diagnose(records, kMinWait).text, Contains("ranks 0-6 (node n0) all_reduce sum f32[4], rank 7"));

    std::vector<RankRecord> counts{On(0).world(2).in("gather_v"), On(1).world(2).in("gather_v")};
    counts[1].view.operations.back().fingerprint = 1;
    CHECK_THAT(diagnose(counts, kMinWait).text,
               StartsWith("MISMATCH") && Contains("rank 0 (node n0) gather_v with one list of counts, rank 1 (node n0) "
                                                  "gather_v with another list of counts"));
    for (RankRecord& record : counts)
        record.view.operations.back().op = "all_to_all_v";  // the ranks do not compare its lists
    CHECK_THAT(diagnose(counts, kMinWait).text, EndsWith("rank 0 (node n0) all_to_all_v of no step, rank 1 (node n0) "
                                                         "all_to_all_v of step 1"));
}

TEST_CASE("all ranks have arrived and nothing moves: the transport", "[coordinator]") {
    const StallVerdict verdict = diagnose(
        {On(0).world(3).done().in(), On(1).world(3).done().done(), On(2).host("n1").world(3).done().in()}, kMinWait);
    CHECK(verdict.kind == StallKind::kAllPresent);
    CHECK(verdict.text ==
          "ALL PRESENT but no progress: transport, or work that takes long: ranks 0 (node n0), 2 (node n1) in #2 "
          "all_reduce sum f32[4] of group 'world' for 31.0 s");
}

TEST_CASE("the group that keeps others waiting is named, not those that wait for it", "[coordinator]") {
    // Rank 0 waits in the world for 1, which waits in a pair for 2, which computes.
    const RankRecord first = On(0).group("pair", {{1, 2, 1}}).world(3).in();
    const RankRecord second = On(1).world(3).group("world/1.0:pair", {{1, 2, 1}}).in("barrier", 20s);
    const RankRecord third = On(2).world(3).group("world/1.0:pair", {{1, 2, 1}}).phase("loading");
    const StallVerdict verdict = diagnose({first, second, third}, kMinWait);
    CHECK(verdict.kind == StallKind::kLagging);
    CHECK_THAT(verdict.text, StartsWith("LAGGING rank 2") && Contains("in phase 'loading'"));
}

TEST_CASE("groups that wait for each other are a circle", "[coordinator]") {
    const RankRecord first = On(0).group("b", {{0, 2, 1}}).group("a", {{0, 2, 1}}).in();
    const RankRecord second = On(1).group("a", {{0, 2, 1}}).group("b", {{0, 2, 1}}).in();
    const StallVerdict verdict = diagnose({first, second}, kMinWait);
    CHECK(verdict.kind == StallKind::kCircle);
    CHECK(verdict.text ==
          "A CIRCLE: rank 0 (node n0) waits in #1 all_reduce sum f32[4] of group 'a' for 31.0 s for rank 1 (node n0), "
          "which waits in #1 all_reduce sum f32[4] of group 'b': all ranks must call them in one order");

    // The ranks that are waited for may be in several operations.
    const std::vector<RankRun> three{{0, 3, 1}};
    const RankRecord waits = On(0).group("a", three).in();
    const RankRecord second_in_b = On(1).group("a", three).group("b", {{0, 2, 1}}).in("barrier");
    const RankRecord third_in_c = On(2).host("n1").group("a", three).group("c", {{0, 1, 1}, {2, 1, 1}}).in("barrier");
    CHECK_THAT(diagnose({waits, second_in_b, third_in_c}, kMinWait).text,
               Contains("for rank 1 (node n0), which waits in #1 barrier of group 'b', and for rank 2 (node n1), which "
                        "waits in #1 barrier of group 'c': all ranks"));
}

TEST_CASE("members of a strided group are distinguished from their neighbours", "[coordinator]") {
    const std::vector<RankRun> even{{0, 3, 2}};
    std::vector<RankRecord> records{On(0).group("even", even).in(), On(2).group("even", even).in(),
                                    On(4).group("even", even)};
    records.push_back(On(1).group("odd", {{1, 2, 2}}).done());
    CHECK_THAT(diagnose(records, kMinWait).text, StartsWith("LAGGING rank 4 (node n0): has completed no"));
}

TEST_CASE("a receive waits for its sender alone", "[coordinator]") {
    On receiver = On(0).world(3).in("recv");
    RecordedOperation& operation = receiver.record.view.operations.back();
    operation.p2p_seq = 7;
    operation.peer = 2;
    receiver.record.view.groups.back() = {"world", 0, 3, {{0, 3, 1}}, true, 0, 0, 0};
    const StallVerdict verdict = diagnose({receiver, On(1).world(3), On(2).world(3).phase("io")}, kMinWait);
    CHECK(verdict.kind == StallKind::kLagging);
    CHECK_THAT(verdict.text, StartsWith("LAGGING rank 2") && Contains("recv #7 peer 2") && Contains("in phase 'io'"));
}

TEST_CASE("a call of NCCL that does not return is named with the rank whose thread is in it", "[coordinator]") {
    On late = On(1).world(2).done();
    late.record.view.device_call = {.name = "cuEventQuery", .group = 0, .time = 40s};
    const std::string call = "; the NCCL thread of rank 1 has been in cuEventQuery of group 'world' for 40.0 s";
    CHECK_THAT(diagnose({On(0).world(2).done().in(), late}, kMinWait).text,
               StartsWith("LAGGING rank 1") && EndsWith(call));
    On waiting = On(0).world(2).done().in();
    waiting.record.view.device_call = {.name = "ncclCommGetAsyncError", .group = 0, .time = 2s};
    CHECK_THAT(diagnose({waiting, late.in()}, kMinWait).text, StartsWith("ALL PRESENT") && EndsWith(call));
    late.record.view.operations.back().started_ago.reset();  // it has called the operation, which is not launched
    CHECK_THAT(diagnose({waiting, late}, kMinWait).text,
               StartsWith("ALL PRESENT") && Contains("rank 0 (node n0) in #2") && EndsWith(call));
}

TEST_CASE("ranks without a flight record are reported as unknown, never as the cause", "[coordinator]") {
    RankRecord silent = On(1);
    silent.view = {};
    const StallVerdict verdict = diagnose({On(0).world(3).in(), silent}, kMinWait);
    CHECK(verdict.kind == StallKind::kUnknown);
    CHECK_THAT(verdict.text, StartsWith("WAITING for ranks 1 (node n0), 2, which have shown no flight record"));
    CHECK_THAT(verdict.hint, Contains("ddp::init_from_env()"));
}

TEST_CASE("a rank with more groups than its flight record has slots is not called late", "[coordinator]") {
    On many = On(1).world(3);
    many.record.view.hidden_groups = 2;
    const StallVerdict verdict = diagnose({On(0).world(3).in(), many, On(2).world(3).in()}, kMinWait);
    CHECK(verdict.kind == StallKind::kUnknown);
    CHECK_THAT(verdict.text, StartsWith("WAITING for rank 1 (node n0): whether rank 1 computes or waits is unknown "
                                        "because 2 of its groups are not recorded: peers wait in #1"));
    CHECK_THAT(diagnose({On(0).world(3).in(), many, On(2).world(3)}, kMinWait).text, StartsWith("LAGGING rank 2"));
}

TEST_CASE("an invalid flight record makes no verdict fail", "[coordinator]") {
    RankRecord odd = On(0).world(2).in();
    odd.view.operations.back().group = 99;
    odd.view.operations.push_back(odd.view.operations.back());
    odd.view.operations.back().group = -1;
    CHECK(diagnose({odd, On(1).world(2)}, kMinWait).kind == StallKind::kNone);
    RankRecord huge = On(0).group("world", {{0, 1 << 27, 1}, {5, 1 << 27, -1}}).in();
    CHECK(diagnose({huge}, kMinWait).kind == StallKind::kUnknown);
}

TEST_CASE("sends and receives that do not match are a mismatch, those that do, the transport", "[coordinator]") {
    const StallVerdict both =
        diagnose({On(0).world(3).transfer("recv", 1), On(1).world(3).transfer("recv", 0)}, kMinWait);
    CHECK(both.kind == StallKind::kMismatch);
    CHECK_THAT(both.text, StartsWith("MISMATCH: rank ") && Contains(" (node n0) is in recv #1 peer ") &&
                              Contains("recv #1 peer 1 tag 0"));
    const StallVerdict tags =
        diagnose({On(0).world(3).transfer("send", 1, 1), On(1).world(3).transfer("recv", 0, 2)}, kMinWait);
    CHECK(tags.kind == StallKind::kMismatch);
    CHECK_THAT(tags.text, Contains("tag 1") && Contains("tag 2"));
    const StallVerdict fit =
        diagnose({On(0).world(3).transfer("send", 1, 1), On(1).host("n1").world(3).transfer("recv", 0, 1, 30s),
                  On(2).world(3).transfer("recv", 1, 5, 12s)},
                 kMinWait);
    CHECK(fit.kind == StallKind::kAllPresent);
    CHECK(fit.text ==
          "ALL PRESENT but no progress: transport from rank 0 (node n0) to rank 1 (node n1), or work that takes long: "
          "rank 0 in send #1 peer 1 tag 1 of group 'world' for 31.0 s");
    const StallVerdict seen_by_receiver = diagnose(
        {On(0).world(2).transfer("send", 1, 1, 30s), On(1).host("n1").world(2).transfer("recv", 0, 1)}, kMinWait);
    CHECK_THAT(seen_by_receiver.text,
               Contains("transport from rank 0 (node n0) to rank 1 (node n1), or") && Contains("rank 1 in recv #1"));
}

TEST_CASE("late ranks are named with the hosts that they are on, of many hosts the first", "[coordinator]") {
    std::vector<RankRecord> records{On(0).world(14).in()};
    for (int rank = 1; rank < 4; ++rank) records.push_back(On(rank).host(rank < 3 ? "a" : "b").world(14));
    CHECK_THAT(diagnose(records, kMinWait).text, StartsWith("LAGGING ranks 1-2 (node a), 3 (node b): rank 1 has"));
    for (int rank = 4; rank < 14; ++rank) records.push_back(On(rank).host("c" + std::to_string(rank)).world(14));
    CHECK_THAT(diagnose(records, kMinWait).text,
               StartsWith("LAGGING ranks 1-2 (node a), 3 (node b), 4 (node c4), 5 (node c5), … (13 on 12 nodes): "));
}

TEST_CASE("a rank that has waited for less than min_wait waits all the same", "[coordinator]") {
    const RankRecord first = On(0).group("pair", {{1, 2, 1}}).world(3).in();
    const RankRecord second = On(1).world(3).group("pair", {{1, 2, 1}}).in("barrier", 6s);
    const RankRecord third = On(2).world(3).group("pair", {{1, 2, 1}}).phase("loading");
    CHECK_THAT(diagnose({first, second, third}, kMinWait).text, StartsWith("LAGGING rank 2"));
}

TEST_CASE("an operation that was only posted makes no rank a culprit, and excuses none", "[coordinator]") {
    // Rank 1 has posted a receive, or a collective of another group, and hangs in its data loader.
    const RankRecord waits = On(0).group("other", {{0, 2, 1}}).world(2).in();
    for (const RankRecord& hangs :
         {RankRecord(On(1).world(2).transfer("recv", 0, 0, 40s).only_posted().phase("loading")),
          RankRecord(
              On(1).world(2).group("other", {{0, 2, 1}}).in("all_reduce", 40s).only_posted().phase("loading"))}) {
        const StallVerdict verdict = diagnose({waits, hangs}, kMinWait);
        CHECK(verdict.kind == StallKind::kLagging);
        CHECK_THAT(verdict.text, StartsWith("LAGGING rank 1 (node n0): ") && Contains("'loading'"));
    }
    // No rank waits: no stall, however old.
    CHECK(diagnose({On(0).world(2).done(), On(1).world(2).transfer("recv", 0, 0, 3h).only_posted()}, kMinWait).kind ==
          StallKind::kNone);
    CHECK(diagnose({On(0).world(2).done(), On(1).world(2).done().in("all_reduce", 3h).only_posted()}, kMinWait).kind ==
          StallKind::kNone);
}

TEST_CASE("a rank that waits for an old operation, or arrives late, waits since then only", "[coordinator]") {
    On waiting = On(0).world(2).in("all_reduce", 3h);
    waiting.record.view.operations.back().waited_ago = 4s;
    CHECK(diagnose({waiting, On(1).world(2)}, kMinWait).kind == StallKind::kNone);
    waiting.record.view.operations.back().waited_ago = 12s;
    CHECK_THAT(diagnose({waiting, On(1).world(2)}, kMinWait).text,
               StartsWith("LAGGING rank 1") && Contains("for 12.0 s"));
    waiting.record.view.operations.back().started_ago = 4s;  // many were before it, and are done
    CHECK(diagnose({waiting, On(1).world(2)}, kMinWait).kind == StallKind::kNone);
}

TEST_CASE("a rank that polls waits, unless it has called something since", "[coordinator]") {
    const RankRecord first = On(0).world(2).in();
    On looks = On(1).world(2).transfer("recv", 0).polled();
    CHECK(diagnose({first, looks}, kMinWait).kind == StallKind::kCircle);
    On receives = looks;
    receives.transfer("arrived", 0, 5, 2s).only_posted();  // it has not called that,
    receives.record.view.operations.back().count = 9;      // nor is it like what it waits for
    CHECK(diagnose({first, receives}, kMinWait).kind == StallKind::kCircle);
    looks.done().record.view.operations.back().queued_ago = 2s;
    looks.record.view.groups.back().queued = 0;
    CHECK(diagnose({first, looks}, kMinWait).kind == StallKind::kLagging);
}

TEST_CASE("the operations of an ended worker count no more, and match no transfer", "[coordinator]") {
    const RankRecord alive = On(0).world(2).done().done().in();
    CHECK(diagnose({alive, On(1).world(2).done().done().in().ended(kKilled)}, kMinWait).seq == 3);
    CHECK(diagnose({On(0).world(2), On(1).world(2).in().ended(kKilled)}, kMinWait).kind == StallKind::kNone);
    const StallVerdict transfer =
        diagnose({On(0).world(2).transfer("send", 1), On(1).world(2).transfer("recv", 0).ended(kExited0)}, kMinWait);
    CHECK(transfer.kind == StallKind::kDead);
}

TEST_CASE("in a group whose members did not fit in the flight record only certain ranks are named", "[coordinator]") {
    On first = On(0).group("odd", {}).in();
    first.record.view.groups.back().size = 40;
    CHECK(diagnose({first}, kMinWait).kind == StallKind::kUnknown);
    On sender = On(0).group("odd", {}).transfer("send", 7);
    sender.record.view.groups.back().size = 40;
    CHECK(diagnose({sender}, kMinWait).kind == StallKind::kUnknown);
}

TEST_CASE("a thousand ranks with many transfers each are diagnosed before a heartbeat is missed", "[coordinator]") {
    constexpr int kRanks = 1'000;
    std::vector<RankRecord> records;
    for (int rank = 0; rank < kRanks; ++rank) {
        On here = On(rank).world(kRanks);
        for (int tag = 0; tag < 24; ++tag) {
            here.transfer("send", (rank + 1) % kRanks, tag);
            here.transfer("recv", (rank + kRanks - 1) % kRanks, tag);
        }
        records.push_back(here);
    }
    const auto before = std::chrono::steady_clock::now();
    CHECK(diagnose(records, kMinWait).kind == StallKind::kAllPresent);
    // Agents give up a daemon that is silent for 3 s: a quadratic algorithm would end the job.
    CHECK(std::chrono::steady_clock::now() - before < 3s);
}
