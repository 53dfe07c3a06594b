// Inquiries about workers that failed or were killed.
#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/rendezvous/diagnosis/inquiry/inquiries_fixture.hpp"

using namespace ddprun;
using namespace ddprun::protocol;
using namespace ddprun::diagnosis;
using namespace ddprun::coordinator;
using namespace ddprun::daemon;
using namespace std::chrono_literals;
using Catch::Contains;

namespace {

constexpr std::chrono::milliseconds kNot{-1};

/// Ranks 0-2 failed in a barrier of the world, and in one of their other group, by the given times ago. Rank 3, and the
/// ranks in `absent`, have not arrived.
std::string answer_timeouts(Inquiries& inquiries, const InquiryActions& asked, TimePoint now,
                            std::chrono::milliseconds world_ago, std::chrono::milliseconds other_ago,
                            const State& state = running(), const std::set<int>& absent = {}) {
    const auto question = to_agents<RequestRecords>(asked);
    REQUIRE(question.size() == 2);
    InquiryActions end;
    for (int rank = 0; rank < 4; ++rank) {
        const bool late = rank == 3 || absent.contains(rank);
        RecordReply one = shown(question[0].second.request, rank, !late, rank % 2 == 1);
        FlightRecord& view = one.record.view;
        view.groups.push_back(view.groups[0]);
        view.groups[1].name = "other";
        const std::vector<RecordedOperation> barrier = std::exchange(view.operations, {});
        for (const auto& [group, ago] : {std::pair(0, world_ago), std::pair(1, other_ago)}) {
            if (late || ago == kNot) continue;
            RecordedOperation& operation = view.operations.emplace_back(barrier[0]);
            operation.id = static_cast<std::uint64_t>(group) + 1;
            operation.group = group;
            operation.started_ago = operation.waited_ago = operation.queued_ago = ago + 30s;
            operation.ended_ago = ago;
            operation.failed = operation.timed_out = true;
        }
        end = show(inquiries, state, rank < 2 ? "a" : "b", one, now);
    }
    REQUIRE_FALSE(end.empty());
    if (state.phase == Phase::kRunning)
        CHECK(to_agents<Notice>(end).empty() == std::get<DiagnosisFinished>(end[0]).diagnosis.text.empty());
    return std::get<DiagnosisFinished>(end[0]).diagnosis.text;
}

constexpr int kLargeNodes = 300;
constexpr int kLargeSlots = 8;

std::string large_name(int node) { return fmt::format("n{:03}", node); }

/// A group of 2,400 ranks that is being stopped because the rank 803 was killed.
State large_group() {
    State state = running();
    state.group.members.clear();
    for (int i = 0; i < kLargeNodes; ++i) {
        Node node;
        node.join.host = large_name(i);
        node.join.programs[0].slots = kLargeSlots;
        node.join.records = true;
        state.nodes.add(large_name(i), node);
        Member& member = state.group.members[large_name(i)];
        member.assignment.generation = Generation{5};
        member.assignment.rank_base = i * kLargeSlots;
        member.assignment.world_size = kLargeNodes * kLargeSlots;
    }
    state.phase = Phase::kStopping;
    FailureReport& failure = state.cause.failure.emplace();
    failure.rank = Rank{803};
    failure.host = large_name(100);
    failure.pid = 71;
    failure.status = {ExitStatus::Kind::kSignaled, SIGKILL, false};
    failure.activity = "in #1 barrier of group 'part'";
    return state;
}

/// A rank of the world and of the group 'part', which has the ranks 800 to 839. It waits in a barrier of that group.
RankRecord large_record(int rank) {
    RankRecord one = record(rank, true);
    one.host = large_name(rank / kLargeSlots);
    one.view.groups[0] = {"world", rank, kLargeNodes * kLargeSlots, {{0, kLargeNodes * kLargeSlots, 1}}, true, 0, 0, 0};
    one.view.groups.push_back({"part", rank - 800, 40, {{800, 40, 1}}, true, 1, 1, 0});
    one.view.operations[0].group = 1;
    return one;
}

Stalled over() {
    Stalled over = stall();
    over.timed_out = true;
    return over;
}

}  // namespace

TEST_CASE("a failure by a deadline is diagnosed at once and once, whatever else is open", "[daemon]") {
    Inquiries inquiries;
    State state = running();
    (void)inquiries.stalled(state, "a", stall(), kStart);
    Stalled over = stall();
    over.timed_out = true;
    const InquiryActions asked = inquiries.stalled(state, "a", over, kStart);
    REQUIRE_FALSE(asked.empty());
    CHECK(std::get<DiagnosisStarted>(asked[0]).generation == Generation{5});
    CHECK(inquiries.stalled(state, "b", over, kStart).empty());  // a peer that failed with it
    const bool goes_on = GENERATE(true, false);
    if (!goes_on) state.phase = Phase::kStopping;
    const auto question = to_agents<RequestRecords>(asked);
    REQUIRE(question.size() == 2);
    InquiryActions end;
    for (int rank = 0; rank < 4; ++rank) {
        RecordReply one = shown(question[0].second.request, rank, rank != 3, rank % 2 == 1);
        if (rank == 3) {  // read before its agent has signaled it to end
            one.record.pid = 71;
            one.record.process = ProcessState::kStopped;
        } else {
            RecordedOperation& operation = one.record.view.operations[0];
            operation.queued_ago = 31s;
            operation.ended_ago = 1s;
            operation.failed = operation.timed_out = true;
        }
        end = show(inquiries, state, rank < 2 ? "a" : "b", one);
    }
    REQUIRE_FALSE(end.empty());
    const std::string process = "; its process 71 ";
    CHECK_THAT(std::get<DiagnosisFinished>(end[0]).diagnosis.text,  // read when all are ended
               Catch::StartsWith("LAGGING rank 3 (node b)") &&
                   Catch::EndsWith(process + "was stopped (a signal, a debugger)"));
    const auto notices = to_agents<Notice>(end);
    REQUIRE(notices.size() == (goes_on ? 2 : 0));  // else it is in the verdict
    if (goes_on)
        CHECK_THAT(notices[0].second.text,
                   Catch::EndsWith(process + "is stopped (a signal, a debugger): kill -CONT 71"));
}

TEST_CASE("a cut link that made another rank miss a deadline does not explain a worker that fails by itself",
          "[daemon]") {
    Inquiries inquiries;
    State state = running();
    const InquiryActions asked = inquiries.stalled(state, "a", over(), kStart);
    const bool goes_on = GENERATE(true, false);
    if (!goes_on) {
        state.phase = Phase::kStopping;
        FailureReport& failure = state.cause.failure.emplace();
        failure.rank = Rank{1};
        failure.host = "a";
        failure.pid = 71;
        failure.status = {ExitStatus::Kind::kExited, 3, false};
    }
    const auto question = to_agents<RequestRecords>(asked);
    REQUIRE(question.size() == 2);
    InquiryActions end;
    for (int rank = 0; rank < 4; ++rank) {  // rank 0 handles the error, and goes on
        RecordReply one = shown(question[0].second.request, rank, rank != 1, rank % 2 == 1);
        if (rank == 0) {
            RecordedOperation& operation = one.record.view.operations[0];
            operation.queued_ago = 31s;
            operation.ended_ago = 1s;
            operation.failed = operation.timed_out = true;
            operation.unreachable = 2;
        }
        end = show(inquiries, state, rank < 2 ? "a" : "b", one);
    }
    REQUIRE_FALSE(end.empty());
    const Diagnosis& diagnosis = std::get<DiagnosisFinished>(end[0]).diagnosis;
    constexpr const char* kText = "LINK node a and node b could not reach each other";
    CHECK_THAT(diagnosis.text, Catch::StartsWith(kText));
    CHECK(diagnosis.links.empty() == !goes_on);
    const auto notices = to_agents<Notice>(end);
    REQUIRE(notices.size() == (goes_on ? 2 : 0));
    if (goes_on) CHECK_THAT(notices[0].second.text, Catch::StartsWith(kText) && !Contains("the job goes on"));
}

TEST_CASE("a deadline that passes soon after another is reported, too, and once", "[daemon]") {
    Inquiries inquiries;
    const State state = running();
    const auto first = inquiries.stalled(state, "a", over(), kStart);
    CHECK_THAT(answer_timeouts(inquiries, first, kStart, 1s, kNot),
               Catch::StartsWith("LAGGING rank 3") && Contains("group 'world'"));
    CHECK(inquiries.stalled(state, "b", over(), kStart + 2s).empty());
    CHECK(inquiries.tick(state, kStart + 4s).empty());
    const auto second = inquiries.tick(state, kStart + 6s);
    const auto [world_ago, other_ago] = GENERATE(table<std::chrono::milliseconds, std::chrono::milliseconds>({
        {4s, kNot},     // a peer that began later
        {7s, 4s},       // another operation …
        {5s, 4s},       // … after a peer that began later has failed in the first
        {kNot, 6500ms}  // … just after the flight records were read
    }));
    CAPTURE(world_ago.count(), other_ago.count());
    const std::string reported = answer_timeouts(inquiries, second, kStart + 6s, world_ago, other_ago);
    if (other_ago == kNot) CHECK(reported.empty());
    if (other_ago != kNot) CHECK_THAT(reported, Catch::StartsWith("LAGGING rank 3") && Contains("group 'other'"));
    CHECK(inquiries.tick(state, kStart + 30s).empty());
}

TEST_CASE("however many deadlines pass, none is reported twice", "[daemon]") {
    Inquiries inquiries;
    const State state = running();
    const auto first = inquiries.stalled(state, "a", over(), kStart);
    CHECK_FALSE(answer_timeouts(inquiries, first, kStart, 1s, kNot).empty());
    const auto second = inquiries.stalled(state, "a", over(), kStart + 5s);
    CHECK_FALSE(answer_timeouts(inquiries, second, kStart + 5s, 500ms, 200ms).empty());
    const auto third = inquiries.stalled(state, "b", over(), kStart + 10s);
    CHECK(answer_timeouts(inquiries, third, kStart + 10s, 5500ms, 5200ms).empty());
    const auto again = inquiries.stalled(state, "a", over(), kStart + 5min);  // of a group that was made again
    CHECK_THAT(answer_timeouts(inquiries, again, kStart + 5min, 1s, kNot), Contains("group 'world'"));
}

TEST_CASE("an operation is reported once, although fewer ranks are late when the next rank fails in it", "[daemon]") {
    Inquiries inquiries;
    const auto first = inquiries.stalled(running(), "a", over(), kStart);
    CHECK_THAT(answer_timeouts(inquiries, first, kStart, 1s, kNot, running(), {2}),
               Catch::StartsWith("LAGGING ranks 2-3"));
    const auto second = inquiries.stalled(running(), "b", over(), kStart + 8s);
    CHECK(answer_timeouts(inquiries, second, kStart + 8s, 100ms, kNot).empty());  // the first failure is overwritten
}

TEST_CASE("a job that ends has the line on the newest deadline, also one that passed while flight records were read",
          "[daemon]") {
    Inquiries inquiries;
    State state = running();
    const auto first = inquiries.stalled(state, "a", over(), kStart);
    CHECK_THAT(answer_timeouts(inquiries, first, kStart, 1s, kNot), Contains("group 'world'"));
    const auto second = inquiries.stalled(state, "a", over(), kStart + 5s);
    state.phase = Phase::kStopping;
    const auto [world_ago, other_ago,
                group] = GENERATE(table<std::chrono::milliseconds, std::chrono::milliseconds, std::string>({
        {kNot, 5400ms, "other"},  // the flight records were read up to a second after they were asked for, both times
        {5900ms, 5400ms, "other"},
        {5500ms, kNot, "world"},  // reported already, but it may be the cause
    }));
    CAPTURE(world_ago.count(), other_ago.count());
    CHECK_THAT(answer_timeouts(inquiries, second, kStart + 6s, world_ago, other_ago, state),
               Catch::StartsWith("LAGGING rank 3") && Contains("group '" + group + "'"));
}

TEST_CASE("a node without an answer does not delay the conclusion of a failure by a deadline", "[daemon]") {
    Inquiries inquiries;
    const State state = running();
    (void)inquiries.stalled(state, "a", over(), kStart);
    CHECK(inquiries.tick(state, kStart + 900ms).empty());
    const InquiryActions end = inquiries.tick(state, kStart + 1s);
    REQUIRE(end.size() == 1);
    CHECK(std::get<DiagnosisFinished>(end[0]).diagnosis.text == "");
}

TEST_CASE("the end of a killed worker leads to one inquiry: its operation, and the ranks that waited for it",
          "[daemon]") {
    Inquiries inquiries;
    State state = running();
    CHECK(inquiries.failed(state, kStart).empty());  // no worker has
    state.phase = Phase::kStopping;
    FailureReport& failure = state.cause.failure.emplace();
    failure.rank = Rank{3};
    failure.host = "b";
    failure.pid = 71;
    failure.status = {ExitStatus::Kind::kSignaled, 9, false};
    CHECK(inquiries.failed(state, kStart).empty());  // it writes no flight record
    failure.activity = "had done no collective";
    const InquiryActions asked = inquiries.failed(state, kStart);
    REQUIRE_FALSE(asked.empty());
    CHECK(std::get<DiagnosisStarted>(asked[0]).generation == Generation{5});
    CHECK(inquiries.failed(state, kStart).empty());  // a peer's failure that changes nothing
    const auto question = to_agents<RequestRecords>(asked);
    REQUIRE(question.size() == 2);
    const bool another = GENERATE(false, true);
    if (another) failure.rank = Rank{2};             // the cause of the first failure, reported later
    CHECK(inquiries.failed(state, kStart).empty());  // one at a time
    InquiryActions end;
    for (int rank = 0; rank < 4; ++rank)
        end = show(inquiries, state, rank < 2 ? "a" : "b",
                   shown(question[0].second.request, rank, rank < 2, rank % 2 == 1));
    REQUIRE(end.size() == 1);
    const Diagnosis& diagnosis = std::get<DiagnosisFinished>(end[0]).diagnosis;
    const std::string detail =
        "had done no collective; ranks 0-1 (node a) waited for it in #1 barrier of group 'world'";
    CHECK(diagnosis.dead == failure.rank);
    CHECK(diagnosis.detail == detail);
    CHECK(diagnosis.names_activity);
    CHECK(diagnosis.text ==
          (another ? "DEAD rank 2 (node b, killed by SIGKILL): " : "DEAD rank 3 (node b, killed by SIGKILL): ") +
              detail);
    CHECK(inquiries.failed(state, kStart).empty());
    failure.rank = Rank{0};
    CHECK_FALSE(inquiries.failed(state, kStart).empty());  // but now another rank is taken for the cause
}

TEST_CASE("the line of an error is that of the worker that is taken for the cause, and of no other", "[daemon]") {
    Inquiries inquiries;
    State state = running();
    state.phase = Phase::kStopping;
    FailureReport& failure = state.cause.failure.emplace();
    failure.rank = Rank{3};
    failure.host = "b";
    failure.pid = 71;
    failure.status = {ExitStatus::Kind::kExited, 1, false};
    failure.activity = "had done no collective";
    const auto question = to_agents<RequestRecords>(inquiries.failed(state, kStart));
    REQUIRE(question.size() == 2);
    InquiryActions end;
    for (int rank = 0; rank < 4; ++rank) {
        RecordReply one = shown(question[0].second.request, rank, rank < 2, rank % 2 == 1);
        if (rank == 3) {
            one.record.view.groups[0].aborted_ago = 80ms;
            one.record.view.groups[0].abort_reason = "loss is NaN";
        }
        end = show(inquiries, state, rank < 2 ? "a" : "b", one);
    }
    REQUIRE(end.size() == 1);
    const Diagnosis& diagnosis = std::get<DiagnosisFinished>(end[0]).diagnosis;
    CHECK_THAT(diagnosis.text, Catch::StartsWith("ABORTED group 'world': rank 3 (node b) aborted it: 'loss is NaN'"));
    CHECK(diagnosis.dead == Rank{3});
    CHECK(diagnosis.detail == diagnosis.text);
    CHECK_FALSE(diagnosis.names_activity);
}

TEST_CASE(
    "ranks that wait for each other are reported although the one that failed first is only known by its peer's end",
    "[daemon]") {
    // Rank 0 has failed by its deadline; rank 1 lost it because of that and ended first. So rank 1 is the cause, and
    // rank 0, signaled to end before its own end was seen, is never reported.
    Inquiries inquiries;
    State state = running();
    state.phase = Phase::kStopping;
    FailureReport& failure = state.cause.failure.emplace();
    failure.rank = Rank{1};
    failure.host = "a";
    failure.pid = 71;
    failure.status = {ExitStatus::Kind::kExited, 1, false};
    failure.activity = "failed in #1 barrier of group 'second'";
    failure.peer_failed = true;
    const InquiryActions asked = inquiries.failed(state, kStart);
    const auto question = to_agents<RequestRecords>(asked);
    REQUIRE(question.size() == 2);
    CHECK(std::holds_alternative<DiagnosisStarted>(asked[0]));
    InquiryActions end;
    for (int rank = 0; rank < 4; ++rank) {
        RecordReply one = shown(question[0].second.request, rank, rank < 2, rank % 2 == 1);
        FlightRecord& view = one.record.view;
        if (rank < 2) {
            view.groups = {{"first", rank, 2, {{0, 2, 1}}, true, 0, 0, 0},
                           {"second", rank, 2, {{0, 2, 1}}, true, 0, 0, 0}};
            RecordedGroup& group = view.groups[static_cast<std::size_t>(rank)];
            group.queued = group.started = 1;
            RecordedOperation& operation = view.operations[0];
            operation.group = rank;
            operation.queued_ago = operation.started_ago.emplace(3s);
            operation.waited_ago = 3s;
            operation.ended_ago = rank == 0 ? 100ms : 50ms;
            operation.failed = true;
            operation.timed_out = rank == 0;
        }
        end = show(inquiries, state, rank < 2 ? "a" : "b", one);
    }
    REQUIRE(end.size() == 1);
    CHECK_THAT(std::get<DiagnosisFinished>(end[0]).diagnosis.text,
               Catch::StartsWith("A CIRCLE: rank 0 (node a) waits in #1 barrier of group 'first' for ") &&
                   Contains("rank 1 (node a), which waits in #1 barrier of group 'second'"));
}

TEST_CASE("beyond 2,000 ranks the record of a failed worker shows which nodes are asked, at most 200", "[daemon]") {
    Inquiries inquiries;
    const State state = large_group();
    const InquiryActions first = inquiries.failed(state, kStart);
    CHECK(std::get<DiagnosisStarted>(first.at(0)).generation == Generation{5});
    const auto own = to_agents<RequestRecords>(first);
    REQUIRE(own.size() == 1);
    CHECK(own[0].first == large_name(100));
    CHECK(own[0].second.rank == Rank{803});

    RankRecord failed = large_record(803);
    failed.ended = true;
    failed.status = ExitStatus{ExitStatus::Kind::kSignaled, SIGKILL, false};
    SECTION("it has groups of its own, and one of all ranks: the near ones complete the number") {
        const auto asked = to_agents<RequestRecords>(
            inquiries.shown(state, large_name(100), {Generation{5}, own[0].second.request, true, failed}, kStart));
        REQUIRE(asked.size() == 200);
        CHECK(asked.front().first == large_name(1));  // the nearest ones by rank
        CHECK(asked.back().first == large_name(200));
        CHECK_FALSE(asked[0].second.rank);
        InquiryActions end;
        for (const auto& [node, request] : asked) {
            const int base = state.group.members.at(node).assignment.rank_base;
            for (int rank = base; rank < base + kLargeSlots; ++rank) {
                RankRecord one = rank == 803 ? failed : large_record(rank);
                if (rank < 800 || rank >= 840) {
                    one.view.groups.pop_back();
                    one.view.operations.clear();
                }
                end = inquiries.shown(state, node,
                                      {Generation{5}, request.request, rank == base + kLargeSlots - 1, one}, kStart);
            }
        }
        REQUIRE(end.size() == 1);
        const Diagnosis diagnosis = std::get<DiagnosisFinished>(end[0]).diagnosis;
        CHECK(diagnosis.dead == Rank{803});
        CHECK_THAT(diagnosis.text, Catch::StartsWith("DEAD rank 803 (node n100, killed by SIGKILL): in #1 barrier") &&
                                       Contains("waited for it there") &&
                                       Catch::EndsWith("(by the records of 200 of 300 nodes)"));
    }
    SECTION("it is in one group only: the nodes of that one are asked") {
        failed.view.groups.erase(failed.view.groups.begin());
        failed.view.operations.clear();
        const auto asked = to_agents<RequestRecords>(
            inquiries.shown(state, large_name(100), {Generation{5}, own[0].second.request, true, failed}, kStart));
        REQUIRE(asked.size() == 5);
        CHECK(asked.front().first == large_name(100));
        CHECK(asked.back().first == large_name(104));
    }
    SECTION("it failed by a deadline, or after a peer: any rank may be the cause") {
        RecordedOperation& operation = failed.view.operations[0];
        operation.ended_ago = 10ms;
        operation.failed = true;
        (GENERATE(true, false) ? operation.timed_out : operation.peer_failed) = true;
        CHECK(to_agents<RequestRecords>(
                  inquiries.shown(state, large_name(100), {Generation{5}, own[0].second.request, true, failed}, kStart))
                  .size() == kLargeNodes);
    }
    SECTION("its agent does not answer: the report is all there is") {
        const InquiryActions end = inquiries.tick(state, kStart + 1s);
        REQUIRE(end.size() == 1);
        CHECK_THAT(std::get<DiagnosisFinished>(end[0]).diagnosis.text, Catch::StartsWith("DEAD rank 803"));
    }
}
