// Which ranks kept others waiting until a deadline, from flight records that were read when all was over.
#include <algorithm>

#include "rendezvous/diagnosis/rewind.hpp"
#include "tests/catch.hpp"
#include "tests/unit/rendezvous/diagnosis/stall_records.hpp"
#include "worker_lib/src/native/protocol/deadlines.hpp"

using namespace ddprun;
using namespace ddprun::diagnosis;
using Catch::Contains;
using Catch::EndsWith;
using Catch::StartsWith;

namespace {

constexpr ExitStatus kTerminated{ExitStatus::Kind::kSignaled, SIGTERM};

/// A rank that waited 20 s for what has failed 2 s ago, and whose process has ended since.
RankRecord failed(int rank, int size, bool timed_out = true) {
    On here = On(rank).world(size).done().in("all_reduce", 22s).ended(kExited1, 1900ms);
    here.record.view.groups.back().live = false;  // it was destroyed on the way out
    RecordedOperation& operation = here.record.view.operations.back();
    operation.ended_ago = timed_out ? 2s : 1999ms;
    operation.failed = true;
    operation.timed_out = timed_out;
    return here;
}

/// Waits for a message of four floats.
On receives(int rank, int size, int peer, std::int64_t tag) {
    On here = On(rank).host("n1").world(size).transfer("recv", peer, tag);
    here.record.view.groups.back().rank = rank;
    here.record.view.operations.back().dtype = "f32";
    here.record.view.operations.back().count = 4;
    return here;
}

/// Has got one under tag 5 that it does not ask for.
On holds(On here, int peer, std::uint64_t count) {
    RecordedOperation& one = here.transfer("arrived", peer, 5, 30s).record.view.operations.back();
    one.dtype = "f32";
    one.count = count;
    one.p2p_seq = 3;
    one.waited_ago.reset();
    return here;
}

}  // namespace

TEST_CASE("the last rank that gives up because of one deadline does so within the time that counts as together",
          "[stall][unit]") {
    const TimePoint deadline = Clock::now();
    const auto last = deadline + std::max(ddp::detail::kFinishingExtra, ddp::detail::kArrivingExtra);
    CHECK(last - deadline + 2 * ddp::detail::kFinalReportTimeout <
          kTogether);                        // it hears others out, and sends its final report
    CHECK(last - deadline > kTogether / 2);  // nor is that far too long
}

TEST_CASE("after a deadline the rank that had not arrived is named, although its peers have failed since",
          "[coordinator]") {
    const StallVerdict verdict =
        diagnose_timeout({failed(0, 3), failed(1, 3, false), On(2).world(3).done().phase("loading")});
    CHECK(verdict.kind == StallKind::kLagging);
    CHECK_THAT(verdict.text, StartsWith("LAGGING rank 2 (node n0): last finished #1 all_reduce sum f32[4], peers wait "
                                        "in #2 all_reduce sum f32[4] of group 'world' for 19.9 s; in phase"));
}

TEST_CASE("a rank that arrived after the deadline had not arrived, and a process that the abort killed was alive",
          "[coordinator]") {
    On late = On(2).world(3).done().in("all_reduce", 1s).ended(kTerminated, 500ms);
    RecordedOperation& operation = late.record.view.operations.back();
    operation.queued_ago = operation.ended_ago.emplace(1s);
    operation.failed = operation.timed_out = true;
    CHECK_THAT(diagnose_timeout({failed(0, 3), failed(1, 3, false), late}).text,
               StartsWith("LAGGING rank 2 (node n0): "));
}

TEST_CASE("a stopped rank is reported as stopped, although the abort continued and ended it", "[coordinator]") {
    On late = On(1).world(2).done().ended(kTerminated, 1800ms);
    late.record.process_before = ProcessState::kStopped;
    const std::string words = "; its process 1001 was stopped (a signal, a debugger)";
    CHECK_THAT(diagnose_timeout({failed(0, 2), late}).text,
               StartsWith("LAGGING rank 1 (node n0): ") && EndsWith(words));
    late.process(ProcessState::kRunning).record.ended_ago.reset();  // it takes its time
    CHECK_THAT(diagnose_timeout({failed(0, 2), late}).text, EndsWith(words));
    On inside =
        On(1).world(2).done().in("all_reduce", 22s).process(ProcessState::kRunning);  // stopped in the operation
    inside.record.process_before = ProcessState::kStopped;
    CHECK_THAT(diagnose_timeout({failed(0, 2), inside}).text, StartsWith("LAGGING rank 1 ") && EndsWith(words));
}

TEST_CASE("a rank that had continued when the deadline passed, signaled long before, was not stopped",
          "[coordinator]") {
    On saving = On(1).world(2).done().process(ProcessState::kRunning);
    saving.record.process_before = ProcessState::kStopped;
    CHECK_THAT(diagnose_timeout({failed(0, 2), saving}).text, EndsWith(" was stopped (a signal, a debugger)"));
    saving.record.process_before_ago = 2099ms;
    CHECK_THAT(diagnose_timeout({failed(0, 2), saving}).text, EndsWith(" was stopped (a signal, a debugger)"));
    saving.record.process_before_ago = 5s;
    CHECK_THAT(diagnose_timeout({failed(0, 2), saving}).text, StartsWith("LAGGING rank 1 ") && !Contains("stopped"));
    saving.ended(kExited0, 100ms);
    CHECK_THAT(diagnose_timeout({failed(0, 2), saving}).text, StartsWith("LAGGING rank 1 ") && !Contains("stopped"));
    saving.record.process_before = ProcessState::kInKernel;
    saving.record.process_before_ago = 1s;
    CHECK_THAT(diagnose_timeout({failed(0, 2), saving}).text, EndsWith("; its process 1001 was in the kernel"));
}

TEST_CASE("a rank that arrives at an operation that its peers have failed in has no culprit", "[coordinator]") {
    On late = On(1).world(2).done().in("all_reduce", 1s);
    RecordedOperation& operation = late.record.view.operations.back();
    operation.queued_ago = 1s;
    operation.ended_ago = 999ms;
    operation.failed = operation.timed_out = true;
    CHECK(diagnose_timeout({failed(0, 2), late}, 1500ms).kind == StallKind::kNone);
    CHECK(diagnose_timeout({failed(0, 2), late}).ranks == std::vector<int>{1});  // for that it was late, as before
    // A group of the same name that was made since is another one.
    RankRecord again = failed(0, 2);
    again.view.groups.push_back(again.view.groups.back());
    CHECK(diagnose_timeout({again, late}, 1500ms).kind != StallKind::kNone);
}

TEST_CASE("a rank that had ended before the deadline is dead, if all had arrived it was the transport",
          "[coordinator]") {
    On dead = On(1).world(2).done().ended(kExited0, 15s);
    CHECK(diagnose_timeout({failed(0, 2), dead}).kind == StallKind::kDead);
    CHECK(diagnose_timeout({failed(0, 2), failed(1, 2, false)}).kind == StallKind::kAllPresent);
}

TEST_CASE("a mismatch is found after the deadline, too", "[coordinator]") {
    RankRecord other = failed(1, 2, false);
    other.view.operations.back().op = "broadcast";
    CHECK(diagnose_timeout({failed(0, 2), other}).kind == StallKind::kMismatch);
}

TEST_CASE("without a recent deadline there is no verdict", "[coordinator]") {
    CHECK(diagnose_timeout({}).kind == StallKind::kNone);
    CHECK(diagnose_timeout({failed(0, 2, false), On(1).world(2)}).kind == StallKind::kNone);
    RankRecord old = failed(0, 2);
    old.view.operations.back().ended_ago = 11s;
    old.view.operations.back().started_ago = 40s;
    CHECK(diagnose_timeout({old, On(1).world(2)}).kind == StallKind::kNone);
}

TEST_CASE("a reported verdict is skipped, whichever rank failed, the next deadline counts", "[coordinator]") {
    On two = On(0).group("first", {{0, 3, 1}}).in("all_reduce", 22s).group("second", {{0, 3, 1}}).in("barrier", 21s);
    On one = On(1).group("first", {{0, 3, 1}}).in("all_reduce", 22s).group("second", {{0, 3, 1}});
    for (On* const here : {&two, &one}) {
        for (RecordedOperation& operation : here->record.view.operations) {
            operation.ended_ago = operation.op == "barrier" ? 1s : here == &two ? 3s : 2s;
            operation.failed = operation.timed_out = true;
        }
    }
    const std::vector<RankRecord> records{two, one, On(2).group("first", {{0, 3, 1}}).group("second", {{0, 3, 1}})};
    CHECK(diagnose_timeout(records).group == "first");
    std::vector<std::string> asked;
    const auto tell = [&](const StallVerdict& verdict) {
        asked.push_back(verdict.group);
        return verdict.group != "first";
    };
    CHECK(diagnose_timeout(records, kRecentTimeout, tell).group == "second");
    CHECK(asked == std::vector<std::string>{"first", "second"});
    CHECK(diagnose_timeout(records, 2500ms).group == "second");  // of the first one's failure only the rest came since
    CHECK(diagnose_timeout(records, 500ms).kind == StallKind::kNone);
    CHECK(diagnose_timeout(records, kRecentTimeout, [](const StallVerdict&) { return false; }).kind ==
          StallKind::kNone);
}

TEST_CASE("an operation that ended because its group failed has no deadline of its own", "[coordinator]") {
    const auto lasted_1s = [](int rank) {
        RankRecord record = failed(rank, 3);
        RecordedOperation& operation = record.view.operations.back();
        operation.queued_ago = operation.started_ago.emplace(3s);
        operation.waited_ago = 3s;
        return record;
    };
    On posted(0);  // a receive for later, and the collective
    posted.record = lasted_1s(0);
    posted.transfer("recv", GENERATE(1, 2), 0, 40s).only_posted();
    RecordedOperation& receive = posted.record.view.operations.back();
    receive.ended_ago = GENERATE(1998ms, 1100ms);
    receive.failed = receive.timed_out = true;
    const std::vector<RankRecord> records{posted, On(1).world(3).done(), lasted_1s(2)};
    std::vector<std::string> asked;
    const auto was_reported = [&](const StallVerdict& verdict) {
        asked.push_back(verdict.text);
        return false;
    };
    CHECK(diagnose_timeout(records, kRecentTimeout, was_reported).kind == StallKind::kNone);
    REQUIRE(asked.size() == 1);
    CHECK_THAT(asked[0], StartsWith("LAGGING rank 1 (node n0): ") && Contains("peers wait in #2 all_reduce"));
    asked.clear();  // also when that deadline is of before
    CHECK(diagnose_timeout(records, 1999ms, was_reported).kind == StallKind::kNone);
    CHECK(asked.empty());
    // And when the group before it, of the same name, had failed, too.
    RecordedOperation& before = posted.record.view.operations[0];
    before.failed = before.timed_out = true;
    before.ended_ago = 10s;
    before.started_ago = 12s;
    posted.record.view.operations[1].queued_ago = receive.queued_ago = 3s;
    CHECK(diagnose_timeout({posted, records[1], records[2]}, 5s, was_reported).kind == StallKind::kNone);
    CHECK(asked.size() == 1);
}

TEST_CASE("an operation that was called when its group had failed has its own deadline: steps at the store",
          "[coordinator]") {
    const auto twice = [](int rank) {
        On here = On(rank).group("world (store)", {{0, 3, 1}}).in("monitored_barrier", 4s).in("monitored_barrier", 2s);
        auto& operations = here.record.view.operations;
        const auto later = rank == 0 ? 0ms : 5ms;
        operations[0].ended_ago = 2s - later;
        operations[1].ended_ago = 1s - later;
        operations[0].queued_ago = 4s;
        operations[1].queued_ago = 2s - later;
        for (RecordedOperation& operation : operations) operation.failed = operation.timed_out = true;
        return here;
    };
    const std::vector<RankRecord> records{twice(0), twice(1), On(2).group("world (store)", {{0, 3, 1}})};
    std::vector<std::uint64_t> asked;
    const auto note = [&](const StallVerdict& verdict) {
        asked.push_back(verdict.seq);
        return false;
    };
    CHECK(diagnose_timeout(records, kRecentTimeout, note).kind == StallKind::kNone);
    CHECK(asked == std::vector<std::uint64_t>{1, 2});
}

TEST_CASE("a thousand receives that fail together are diagnosed once", "[coordinator]") {
    std::vector<RankRecord> records;
    for (int rank = 0; rank < 1'000; ++rank) {
        On here = On(rank).world(1'000).done().transfer("recv", (rank + 1) % 1'000, 0, 5s);
        RecordedOperation& receive = here.record.view.operations.back();
        receive.ended_ago = 2s - std::chrono::microseconds(rank);
        receive.failed = receive.timed_out = true;
        records.push_back(here);
    }
    int asked = 0;
    CHECK(diagnose_timeout(records, kRecentTimeout, [&](const StallVerdict&) { return ++asked == 0; }).kind ==
          StallKind::kNone);
    CHECK(asked == 1);
}

TEST_CASE("of many groups that fail only a few are diagnosed: the daemon's other work waits", "[coordinator]") {
    On here(0);
    for (int i = 0; i < 20; ++i) {
        here.group("pair " + std::to_string(i), {{0, 2, 1}}).in("all_reduce", 5s);
        RecordedOperation& operation = here.record.view.operations.back();
        operation.queued_ago = 5s;
        operation.ended_ago = 2s;
        operation.failed = operation.timed_out = true;
    }
    int asked = 0;
    (void)diagnose_timeout({here, On(1)}, kRecentTimeout, [&](const StallVerdict&) { return ++asked == 0; });
    CHECK(asked == 4);
}

TEST_CASE("a rewound flight record loses what came later, and its groups count as then", "[coordinator]") {
    On here = On(0).world(2).done().done();
    here.record.view.operations[1].queued_ago = 10s;
    here.record.view.operations[1].started_ago = 9s;
    here.record.view.operations[1].ended_ago = 3s;
    here.record.view.phase = "eval";
    here.record.view.phase_for = 4s;
    here.record.view.device_call = {.name = "ncclAllReduce", .group = 0, .time = 8s};
    const FlightRecord then = rewind({here}, 5s).front().view;
    CHECK(then.groups[0] == RecordedGroup{"world", 0, 2, {{0, 2, 1}}, true, 2, 2, 1});
    CHECK(then.operations[1].started_ago == 4s);
    CHECK_FALSE(then.operations[1].ended_ago);
    CHECK(then.phase == "");
    CHECK(then.device_call == DeviceCall{"ncclAllReduce", 0, 3s});
    const FlightRecord before = rewind({here}, 10s).front().view;
    CHECK(before.operations.size() == 1);
    CHECK(before.device_call == DeviceCall());
    CHECK(before.groups[0].queued == 1);
    CHECK(before.groups[0].done == 1);
    CHECK(rewind({here}, 1h).front().view.operations.empty());
}

TEST_CASE("the device call of a process that has ended is rewound from that end on", "[coordinator]") {
    On here = On(0).world(2).done().ended(kKilled, 4s);
    here.record.view.device_call = {.name = "ncclAllReduce", .group = 0, .time = 8s};  // up to the end
    CHECK(rewind({here}, 3s).front().view.device_call.time == 8s);
    CHECK(rewind({here}, 5s).front().view.device_call.time == 7s);
    CHECK(rewind({here}, 12s).front().view.device_call == DeviceCall());
}

TEST_CASE("a message without a receive is a mismatch, unless another rank is late or it is no circle of two",
          "[coordinator]") {
    const On receiver = receives(1, 3, 0, 7);
    const RankRecord sender = On(0).world(3).in("barrier");
    const StallVerdict verdict = diagnose({sender, holds(receiver, 0, 4), On(2).world(3).in("barrier")}, 10s);
    CHECK(verdict.kind == StallKind::kMismatch);
    CHECK(
        verdict.text ==
        "MISMATCH: rank 1 (node n1) is in recv #1 f32[4] peer 0 tag 7 of group 'world' for 31.0 s, and no receive "
        "matches the message that rank 0 (node n0) has sent it, send #3 f32[4] peer 1 tag 5: the send and the receive "
        "must match and have the same tag, unless rank 0 (node n0) is still to send it");
    // The text names it also where each of the two waits for another message of the other.
    CHECK_THAT(diagnose({On(0).world(2).transfer("recv", 1, 9, 35s), holds(receives(1, 2, 0, 7), 0, 4)}, 10s).text,
               StartsWith("MISMATCH: rank 1 (node n1) is in recv #1 f32[4] peer 0 tag 7") &&
                   Contains("send #3 f32[4] peer 1 tag 5"));

    // Another message, or from another rank, or asked for since.
    CHECK(diagnose({sender, receiver, On(2).world(3).in("barrier")}, 10s).kind == StallKind::kCircle);
    CHECK(diagnose({sender, holds(receiver, 0, 5), On(2).world(3).in("barrier")}, 10s).kind == StallKind::kCircle);
    CHECK(diagnose({sender, holds(receiver, 2, 4), On(2).world(3).in("barrier")}, 10s).kind == StallKind::kCircle);
    On claimed = holds(receiver, 0, 4);
    claimed.record.view.operations.back().ended_ago = 29s;
    CHECK(diagnose({sender, claimed, On(2).world(3).in("barrier")}, 10s).kind == StallKind::kCircle);

    // A late rank may be the reason why the rest has not been sent.
    CHECK_THAT(diagnose({sender, holds(receiver, 0, 4), On(2).world(3).phase("loading")}, 10s).text,
               StartsWith("LAGGING rank 2"));
    CHECK_THAT(diagnose({On(0).world(3).phase("loading"), holds(receiver, 0, 4), On(2).world(3)}, 10s).text,
               StartsWith("LAGGING rank 0"));
    CHECK_THAT(diagnose({On(0).world(3).ended(kExited0), holds(receiver, 0, 4)}, 10s).text, StartsWith("DEAD rank 0"));
}

TEST_CASE("a circle of three stays one, though each holds what the next has sent ahead, as a pipeline does",
          "[coordinator]") {
    std::vector<RankRecord> records;
    for (int rank = 0; rank < 3; ++rank)
        records.push_back(holds(receives(rank, 3, (rank + 1) % 3, 7), (rank + 1) % 3, 4));
    CHECK(
        diagnose(records, 10s).text ==
        "A CIRCLE: rank 0 (node n1) waits in recv #1 f32[4] peer 1 tag 7 of group 'world' for 31.0 s for rank 1 (node "
        "n1), which waits in recv #1 f32[4] peer 2 tag 7 of group 'world': all ranks must call them in one order; "
        "no receive matches the message that rank 1 (node n1) has sent rank 0, send #3 f32[4] peer 0 tag 5");
    // Only one of them holds something: the line starts there.
    records[0] = receives(0, 3, 1, 7);
    records[1] = receives(1, 3, 2, 7);
    CHECK_THAT(diagnose(records, 10s).text,
               StartsWith("A CIRCLE: rank 2 (node n1) waits in ") &&
                   EndsWith("rank 0 (node n1) has sent rank 2, send #3 f32[4] peer 2 tag 5"));
    // A rank that waits for the two others waits for the receiver, too.
    records[0] = On(0).host("n1").world(3).in("barrier");
    CHECK_THAT(diagnose(records, 10s).text,
               StartsWith("MISMATCH: rank 2 ") && EndsWith("unless rank 0 (node n1) is still to send it"));
}
