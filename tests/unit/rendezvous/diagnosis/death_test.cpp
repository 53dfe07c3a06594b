// The one line about a worker that was killed, crashed, or ended by an error: flight records in, text out.
#include <string>
#include <vector>

#include "rendezvous/diagnosis/death.hpp"
#include "rendezvous/diagnosis/hints.hpp"
#include "rendezvous/diagnosis/mismatch.hpp"
#include "rendezvous/protocol/flight_record.hpp"
#include "tests/catch.hpp"
#include "tests/unit/rendezvous/diagnosis/stall_records.hpp"

using namespace ddprun;
using namespace ddprun::diagnosis;
using Catch::Contains;

namespace {

constexpr int kDead = 3;

FailureReport killed(const RankRecord& record, ExitStatus status = {ExitStatus::Kind::kSignaled, 9, false}) {
    FailureReport failure;
    failure.rank = record.rank;
    failure.host = record.host;
    failure.pid = record.pid;
    failure.status = status;
    failure.activity = describe_activity(record.view);
    return failure;
}

On dead() { return On(kDead).host("b").world(4).done(); }

/// Its newest operation has failed since.
On failed(On peer, std::chrono::nanoseconds ago) {
    RecordedOperation& operation = peer.record.view.operations.back();
    operation.ended_ago = ago;
    operation.failed = true;
    return peer;
}

RankRecord ended(RankRecord record, std::chrono::nanoseconds ago = 50ms) {
    record.ended = true;
    record.ended_ago = ago;
    return record;
}

}  // namespace

TEST_CASE(
    "the line on a dead worker names its operation, and the ranks that waited for it, whether they have failed or not",
    "[coordinator]") {
    On in = dead().in("all_reduce", 2s);
    in.record.view.operations.back().tag = "bucket 3";
    in.phase("eval");
    const RankRecord record = ended(in);
    std::vector<RankRecord> records{failed(On(0).world(4).done().in(), 49ms), failed(On(1).world(4).done().in(), 900ms),
                                    On(2).host("b").world(4).done().in(), record};
    const DeathVerdict verdict = diagnose_death(records, killed(record));
    CHECK(verdict.text ==
          "DEAD rank 3 (node b, killed by SIGKILL): in #2 all_reduce sum f32[4] 'bucket 3' of group 'world' for 2.0 s; "
          "in "
          "phase 'eval'; ranks 0-1 (node n0), 2 (node b) waited for it there");
    CHECK(verdict.text.ends_with("): " + verdict.detail));
}

TEST_CASE("a small operation whose time is that of the last tick is newer than the large one before it",
          "[coordinator]") {
    On on = On(0).world(4).done().done();
    on.record.view.operations[0].ended_ago = 1ms;
    on.record.view.operations[1].ended_ago = 5ms;
    CHECK_THAT(describe_activity(on.record.view), Catch::StartsWith("had finished #2 all_reduce"));
    CHECK(describe_activity(On(0).group("world (init)", {{0, 4, 1}}).done("init_from_env").world(4).record.view) ==
          "had done no collective");
    On split =
        On(0).group("world (store)", {{0, 4, 1}}).done("split").world(4).done();  // and its small one was called later
    split.record.view.operations[0].ended_ago = 2000ms;
    split.record.view.operations[1].ended_ago = 2003ms;
    CHECK_THAT(describe_activity(split.record.view), Catch::StartsWith("had finished #1 all_reduce"));
    split.record.view.operations[1].ended_ago = 2030ms;  // longer than a tick
    CHECK_THAT(describe_activity(split.record.view), Catch::StartsWith("had finished #1 split"));
}

TEST_CASE("the line on a worker that died while it computed names what it had finished, and what the others waited in",
          "[coordinator]") {
    const RankRecord record = ended(dead());
    FailureReport failure = killed(record);
    failure.oom = OomKill::kYes;
    const RankRecord computes = On(2).world(4).done();
    const RankRecord only_posted = On(1).world(4).done().in().only_posted();
    CHECK(
        diagnose_death({On(0).world(4).done().in(), only_posted, computes, record}, failure).text ==
        "DEAD rank 3 (node b, killed by SIGKILL by the kernel's out-of-memory killer): had finished #1 all_reduce sum "
        "f32[4] of group 'world', 38.0 s before; rank 0 (node n0) waited for it in #2 all_reduce sum f32[4] of group "
        "'world'");
    CHECK_THAT(diagnose_death({only_posted, computes, record}, failure).text, Contains("; no rank waited for it"));
    CHECK_THAT(diagnose_death({only_posted, On(2), record}, failure).text, Contains("; no rank waited for it"));
    RankRecord silent = On(2);
    silent.view = {};
    CHECK_THAT(diagnose_death({only_posted, silent, record}, failure).text, !Contains("waited"));
    CHECK_THAT(diagnose_death({record}, failure).text, !Contains("waited"));  // it was alone
}

TEST_CASE("a worker that ends with a code while no rank waits for it has no line of its own", "[coordinator]") {
    const RankRecord record = ended(dead());
    FailureReport failure = killed(record);
    failure.status = {ExitStatus::Kind::kExited, 1, false};
    CHECK(diagnose_death({On(1).world(4).done(), On(2).world(4).done(), record}, failure).text.empty());
    CHECK_THAT(diagnose_death({On(1).world(4).done().in(), record}, failure).text, Contains("waited for it"));
}

TEST_CASE("a rank that had failed long before, or is in an operation without the dead one, did not wait for it",
          "[coordinator]") {
    const RankRecord record = ended(dead());
    const std::vector<RankRecord> records{
        failed(On(0).world(4).done().in(), 3s),                          // long before
        On(1).world(4).done().group("pair", {{1, 2, 1}}).in(),           // of ranks 1 and 2
        On(2).world(4).in(),                                             // in one that the dead one had done
        On(4).group("odd", {{1, 4, 2}}).in("barrier").in("all_reduce"),  // ranks 1, 3, 5, 7: this one did
        record,
    };
    CHECK_THAT(diagnose_death(records, killed(record)).text,
               Contains("; rank 4 (node n0) waited for it in #1 barrier of group 'odd'"));
}

TEST_CASE("a send or receive waits for the dead one if that is its other side", "[coordinator]") {
    const RankRecord record = ended(dead());
    CHECK_THAT(diagnose_death({On(0).world(4).transfer("recv", 3, 7), On(1).world(4).transfer("recv", 2), record},
                              killed(record))
                   .text,
               Contains("; rank 0 (node n0) waited for it in recv #1 peer 3 tag 7 of group 'world'"));
    CHECK_THAT(
        diagnose_death(
            {On(0).world(4).transfer("recv", 3, 7), On(1).world(4).done().in(), On(2).world(4).done().in(), record},
            killed(record))
            .text,
        Contains("; ranks 1-2 (node n0) waited for it in #2 all_reduce sum f32[4] of group 'world', rank 0 (node n0) "
                 "elsewhere"));
}

TEST_CASE("a worker that ended because an operation had failed kept no rank waiting, unless a signal ended it",
          "[coordinator]") {
    const RankRecord record = ended(failed(dead().in(), 60ms));
    const std::vector<RankRecord> records{On(0).world(4).done().in(), record};
    CHECK(diagnose_death(records, killed(record, {ExitStatus::Kind::kExited, 1, false})).text == "");
    CHECK_THAT(diagnose_death(records, killed(record)).text, Contains("killed by SIGKILL): failed in #2"));
    CHECK(diagnose_death(records, killed(record, {ExitStatus::Kind::kSignaled, 6, false})).text ==
          "");  // it caught nothing
    const RankRecord crashed = ended(dead());
    CHECK_THAT(diagnose_death({records[0], crashed}, killed(crashed, {ExitStatus::Kind::kExited, 1, false})).text,
               Contains("DEAD rank 3 (node b, exited with code 1): had finished #1"));
    FailureReport victim = killed(crashed, {ExitStatus::Kind::kExited, 1, false});
    victim.peer_failed = true;
    CHECK(diagnose_death({records[0], crashed}, victim).text == "");
    FailureReport without_recorder = killed(crashed);
    without_recorder.activity = "";
    CHECK(diagnose_death({records[0], crashed}, without_recorder).text == "");
    // Its agent did not answer, but has reported its end.
    CHECK_THAT(diagnose_death({records[0]}, killed(crashed)).text, Contains("; rank 0 (node n0) waited for it in #2"));
}

namespace {

constexpr ExitStatus kExitOne{ExitStatus::Kind::kExited, 1, false};

std::string error_line(const std::vector<RankRecord>& records, const FailureReport& dead) {
    return diagnose_error(records, dead).text;
}

/// Its newest operation has failed, because others called another one.
On mismatched(On peer, std::chrono::nanoseconds ago = 60ms) {
    peer = failed(std::move(peer), ago);
    peer.record.view.operations.back().mismatch = true;
    return peer;
}

}  // namespace

TEST_CASE("the line on a mismatch that was found at once says which ranks called what, however the program ended",
          "[coordinator]") {
    On other = mismatched(dead().in("broadcast"));
    other.record.view.operations.back().tag = "weights";
    const RankRecord record = ended(other);
    std::vector<RankRecord> records{ended(mismatched(On(0).world(4).done().in())),
                                    ended(mismatched(On(1).world(4).done().in())), On(2).host("b").world(4).done(),
                                    record};
    const std::string line =
        "MISMATCH at #2 of group 'world': ranks 0-1 (node n0) all_reduce sum f32[4], rank 3 (node b) broadcast "
        "'weights'";
    CHECK(error_line(records, killed(record, kExitOne)) == line);
    CHECK(error_line(records, killed(records[0], kExitOne)) == line);  // whichever rank is taken for the cause
    CHECK(error_line(records, killed(record, {ExitStatus::Kind::kSignaled, 6, false})) == line);
    CHECK(error_line(records, killed(records[2])) == "");  // killed by SIGKILL, of something else
    for (RankRecord& old : records)
        for (RecordedOperation& operation : old.view.operations)
            if (operation.mismatch) operation.ended_ago = 11s;
    CHECK(error_line(records, killed(record, kExitOne)) == "");  // the program has survived it
}

TEST_CASE("of a mismatch in counts or steps alone the odd rank is named, and of several the first", "[coordinator]") {
    const auto gathering = [](int rank, std::uint64_t fingerprint, const std::string& op) {
        On here = On(rank).world(3).in(op);
        here.record.view.operations.back().fingerprint = fingerprint;
        // Refused, because the group has failed: all of them called that.
        return RankRecord(mismatched(mismatched(here).in(), 50ms));
    };
    std::vector<RankRecord> records;
    for (const int rank : {0, 1, 2}) records.push_back(gathering(rank, rank == 1 ? 7 : 8, "all_gather_v"));
    CHECK(
        error_line(records, killed(records[0], kExitOne)) ==
        "MISMATCH at #1 of group 'world': ranks 0, 2 (node n0) all_gather_v with one list of counts, rank 1 (node n0) "
        "all_gather_v with another list of counts");
    records.clear();
    for (const int rank : {0, 1, 2}) records.push_back(gathering(rank, rank == 2 ? 0 : 8, "barrier"));
    CHECK(
        error_line(records, killed(records[0], kExitOne)) ==
        "MISMATCH at #1 of group 'world': ranks 0-1 (node n0) barrier of step 8, rank 2 (node n0) barrier of no step");
}

TEST_CASE("a rank that aborted a group is named with the reason, and with the ranks that were in it", "[coordinator]") {
    On aborter = dead().phase("eval");
    aborter.record.view.groups[0].aborted_ago = 80ms;
    aborter.record.view.groups[0].abort_reason = "loss is NaN";
    const RankRecord record = ended(aborter);
    const RankRecord peer = ended(failed(On(0).world(4).done().in(), 70ms));
    const std::vector<RankRecord> records{peer, On(1).world(4).done(), record};
    const std::string line =
        "ABORTED group 'world': rank 3 (node b) aborted it: 'loss is NaN'; rank 0 (node n0) was "
        "in #2 all_reduce sum f32[4]; rank 3 in phase 'eval'";
    CHECK(error_line(records, killed(record, kExitOne)) == line);
    CHECK(error_line(records, killed(record)) == line);          // by what it did next
    CHECK(error_line(records, killed(peer, kExitOne)) == line);  // it failed because of the abort
    CHECK(error_line(records, killed(peer)) == "");              // killed by SIGKILL
    // A rank that had ended before, or an operation that had failed, is the cause of the abort.
    RankRecord before = ended(On(2).host("b").world(4).done(), 90ms);
    CHECK(error_line({peer, record, before}, killed(before, kExitOne)) == "");
    RankRecord of_another_error = ended(failed(aborter.in(), 81ms));
    CHECK(error_line({peer, of_another_error}, killed(of_another_error, kExitOne)) == "");
}

TEST_CASE("a rank that continues after it has aborted a group, and is killed later, did not end because of that",
          "[coordinator]") {
    On aborter = dead();
    aborter.record.view.groups[0].aborted_ago = 8s;
    aborter.record.view.groups[0].abort_reason = "the evaluation is over";
    const RankRecord record = ended(aborter);
    const std::vector<RankRecord> records{On(0).world(4).done().in(), record};
    CHECK(error_line(records, killed(record)) == "");
    CHECK_THAT(diagnose_death(records, killed(record)).text, Contains("; rank 0 (node n0) waited for it"));
    CHECK_THAT(error_line(records, killed(record, kExitOne)), Catch::StartsWith("ABORTED group 'world'"));
}

TEST_CASE("a rank that is no member of a group, or failed in none of its operations, did not end because of its error",
          "[coordinator]") {
    On aborter = On(1).world(4).done().group("eval", {{0, 2, 1}}).done();
    aborter.record.view.groups[1].aborted_ago = 80ms;
    aborter.record.view.groups[1].abort_reason = "loss is NaN";
    const RankRecord peer = ended(failed(On(0).world(4).done().group("eval", {{0, 2, 1}}).done().in(), 70ms));
    const RankRecord calm = ended(On(0).world(4).done().group("eval", {{0, 2, 1}}).done());
    const RankRecord stranger = ended(failed(On(3).world(4).done().in(), 70ms));
    CHECK_THAT(error_line({peer, aborter, stranger}, killed(peer, kExitOne)),
               Catch::StartsWith("ABORTED group 'eval'"));
    CHECK(error_line({peer, aborter, stranger}, killed(stranger, kExitOne)) == "");
    CHECK(error_line({calm, aborter, stranger}, killed(calm, kExitOne)) == "");

    On first = mismatched(On(0).world(4).done().group("eval", {{0, 2, 1}}).in());
    const RankRecord second = mismatched(On(1).world(4).done().group("eval", {{0, 2, 1}}).in("barrier"));
    CHECK_THAT(error_line({first, second, stranger}, killed(second, kExitOne)),
               Catch::StartsWith("MISMATCH at #1 of group 'eval'"));
    CHECK(error_line({first, second, stranger}, killed(stranger, kExitOne)) == "");
    first.record.rank = Rank{3};  // the others' member lists have a member without a flight record
    CHECK_THAT(error_line({first, second}, killed(RankRecord(On(0)), kExitOne)), Catch::StartsWith("MISMATCH at #1"));
}

TEST_CASE("the line on a send and a receive that do not match has both, whichever rank is taken for the cause",
          "[coordinator]") {
    On receiver = mismatched(On(1).host("b").world(3).transfer("recv", 0, 5));
    receiver.record.view.groups[0].rank = 1;
    receiver.record.view.operations.back().dtype = "f32";
    receiver.record.view.operations.back().count = 5;
    RecordedOperation message = receiver.record.view.operations.back();
    message.op = "arrived";
    message.p2p_seq = 7;
    message.count = 4;
    message.tag = "halo";
    receiver.record.view.operations.push_back(message);
    // A rank that gets the error from a peer has the same one, in any operation.
    const std::vector<RankRecord> records{ended(mismatched(On(0).world(3).in())), ended(receiver),
                                          ended(mismatched(On(2).world(3).in(), 50ms))};
    const std::string line =
        "MISMATCH of a send and its receive in group 'world': rank 0 (node n0) send #7 f32[4] peer 1 tag 5 'halo', "
        "rank 1 (node b) recv #1 f32[5] peer 0 tag 5";
    for (const RankRecord& record : records) CHECK(error_line(records, killed(record, kExitOne)) == line);
    CHECK(error_line(records, killed(records[1])) == "");                   // killed by SIGKILL, of something else
    CHECK(error_line(records, killed(RankRecord(On(3)), kExitOne)) == "");  // no member
    receiver.record.view.operations.back().ended_ago = 11s;
    CHECK(error_line({ended(receiver), records[2]}, killed(records[2], kExitOne)) ==
          "");  // the program has survived it
}

TEST_CASE("a rank that left a group without an error is named when a peer fails because of that", "[coordinator]") {
    On leaver = On(1).host("b").world(4).done();
    leaver.record.view.groups[0].left_ago = 90ms;
    leaver.ended(kExited0, 12ms);
    const RankRecord gone = ended(leaver);
    const RankRecord victim = ended(failed(On(0).world(4).done().in(), 80ms));
    // The first one had taken this one along, out of something that the leaver had done.
    const RankRecord second = ended(failed(On(2).world(4).in(), 70ms));
    const RankRecord third = failed(On(3).world(4).done().in(), 75ms);
    const std::string line =
        "LEFT rank 1 (node b, exited with code 0): let go of group 'world' after #1 all_reduce sum f32[4]; ranks 0, 3 "
        "(node n0) were in #2 all_reduce sum f32[4]";
    CHECK(error_line({victim, gone, second, third}, killed(victim, kExitOne)) == line);
    CHECK(error_line({victim, gone, second, third}, killed(second, kExitOne)) == line);
    CHECK(error_line({victim, gone, second, third}, killed(victim)) == "");  // killed by SIGKILL
    On without_a_word = leaver;                                              // it has ended without letting go
    without_a_word.record.view.groups[0].left_ago.reset();
    CHECK(error_line({victim, ended(without_a_word, 85ms), third}, killed(victim, kExitOne)) == line);
    without_a_word.ended(kKilled, 12ms);
    CHECK(error_line({victim, ended(without_a_word, 85ms), third}, killed(victim, kExitOne)) == "");

    const RankRecord receiver = ended(failed(On(0).world(4).done().transfer("recv", 1, 7), 80ms));
    CHECK_THAT(error_line({receiver, gone}, killed(receiver, kExitOne)),
               Catch::EndsWith("; rank 0 (node n0) was in recv #1 peer 1 tag 7"));
    const RankRecord of_another = ended(failed(On(0).world(4).done().transfer("recv", 2, 7), 80ms));
    CHECK(error_line({of_another, gone}, killed(of_another, kExitOne)) == "");
}

TEST_CASE("of several ranks that had left the one that was needed is named, not the one that left first",
          "[coordinator]") {
    On early = On(1).host("b").world(4).done().done();  // all that the others have failed in it had done
    early.record.view.groups[0].left_ago = 300ms;
    On needed = On(2).host("b").world(4).done();
    needed.record.view.groups[0].left_ago = 90ms;
    const RankRecord victim = ended(failed(On(0).world(4).done().in(), 80ms));
    const RankRecord other = failed(On(3).world(4).done().in(), 75ms);
    CHECK(error_line({victim, early, needed, other}, killed(victim, kExitOne)) ==
          "LEFT rank 2 (node b): let go of group 'world' after #1 all_reduce sum f32[4]; ranks 0, 3 (node n0) were in "
          "#2 all_reduce sum f32[4]");
    // Of two that were needed, the one that left first.
    On first = On(1).host("b").world(4).done();
    first.record.view.groups[0].left_ago = 300ms;
    CHECK_THAT(error_line({victim, first, needed, other}, killed(victim, kExitOne)),
               Catch::StartsWith("LEFT rank 1 (node b): "));
}

TEST_CASE("the line on a rank that left a group with work in flight names that work", "[coordinator]") {
    const RankRecord victim = ended(failed(On(0).world(3).done().in(), 80ms));
    On leaver = failed(On(1).host("b").world(3).done().in(), 89ms);
    leaver.record.view.groups[0].left_ago = 90ms;
    CHECK(error_line({victim, leaver}, killed(victim, kExitOne)) ==
          "LEFT rank 1 (node b): let go of group 'world' after #1 all_reduce sum f32[4], with #2 all_reduce sum f32[4] "
          "in flight; rank 0 (node n0) was in #2 all_reduce sum f32[4]");
    CHECK(diagnose_error({victim, leaver}, killed(victim, kExitOne)).hint == kInFlightHint);
    // What it had given its part to is no loss: the peers have failed of what came after.
    On later = failed(On(0).world(4).done().done().in(), 80ms);
    const RankRecord beyond = ended(later);
    leaver.record.view.groups[0].size = beyond.view.groups[0].size;
    leaver.record.view.groups[0].members = beyond.view.groups[0].members;
    const auto verdict = diagnose_error({beyond, leaver}, killed(beyond, kExitOne));
    CHECK_THAT(verdict.text, Catch::StartsWith("LEFT rank 1 ") && !Catch::Contains("in flight"));
    CHECK(verdict.hint == kStepsHint);
    leaver.record.view.groups[0].size = victim.view.groups[0].size;
    leaver.record.view.groups[0].members = victim.view.groups[0].members;
    leaver.record.view.operations.back().ended_ago = 95ms;  // it had failed before
    CHECK(error_line({victim, leaver}, killed(victim, kExitOne)) == "");
}

TEST_CASE("a rank that left because of an error, or later, or was not needed any more, is no cause of a peer's failure",
          "[coordinator]") {
    const RankRecord victim = ended(failed(On(0).world(4).done().in(), 80ms));
    const auto left = [](On peer, std::chrono::nanoseconds ago) {
        peer.record.view.groups[0].left_ago = ago;
        return peer;
    };
    const auto line = [&](const On& peer) { return error_line({victim, peer}, killed(victim, kExitOne)); };
    const On peer = On(1).world(4).done();
    CHECK(line(left(peer, 90ms)) != "");
    CHECK(line(left(peer, 11s)) == "");  // too long ago
    On signaled = left(peer, 90ms);
    signaled.record.process_before = ProcessState::kRunning;
    signaled.record.process_before_ago = 60ms;
    CHECK(line(signaled) != "");
    signaled.record.process_before_ago = 95ms;
    CHECK(line(signaled) == "");  // its agent had signaled it
    CHECK(line(left(failed(On(1).world(4).done().in(), 95ms), 90ms)) == "");
    CHECK(line(left(On(1).world(4).done().done(), 90ms)) == "");
    On by_exception = left(peer, 90ms);
    by_exception.record.view.groups[0].left_by_exception = true;
    CHECK(line(by_exception) == "");
    CHECK(error_line({ended(failed(On(0).world(4).done().in(), 2s)), left(peer, 90ms)}, killed(victim, kExitOne)) ==
          "");
    RankRecord late = victim;
    late.view.operations.back().timed_out = true;  // a deadline has its own line
    CHECK(error_line({late, left(peer, 90ms)}, killed(late, kExitOne)) == "");
}
