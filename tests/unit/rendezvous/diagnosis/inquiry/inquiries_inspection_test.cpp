// Inquiries of inspectors: what ddpctl gets.
#include <chrono>
#include <string>
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

TEST_CASE("ddpctl gets few operations of each rank when it asks for all, and an answer when the workers are restarted",
          "[daemon]") {
    Inquiries inquiries;
    State state = running();
    const auto asked = to_agents<RequestRecords>(inquiries.inspect(state, kInspector, {1, {}, 2'000}, kStart));
    REQUIRE(asked.size() == 2);
    CHECK(asked[0].second.operations == 16);
    CHECK(inquiries.is_open(kInspector));
    state.group.generation = Generation{6};
    const InquiryActions end = inquiries.tick(state, kStart);
    REQUIRE(inspected(end) != nullptr);
    CHECK(inspected(end)->world_size == 4);
    CHECK_THAT(inspected(end)->verdict, Contains("restarted meanwhile"));
    CHECK_FALSE(inquiries.is_open(kInspector));
}

TEST_CASE("a node that does not answer in time, is lost or is an older ddprun does not delay the answer", "[daemon]") {
    Inquiries inquiries;
    State state = running();
    const auto how = GENERATE(as<std::string>(), "late", "gone", "older");
    CAPTURE(how);
    if (how == "older") {
        Join join = state.nodes.at("b").join;
        join.records = false;
        state.nodes.set_join("b", join);
    }
    const InquiryActions asked = inquiries.inspect(state, kInspector, {1, {}, 16}, kStart);
    const auto questions = to_agents<RequestRecords>(asked);
    REQUIRE(questions.size() == (how == "older" ? 1 : 2));
    const std::uint64_t request = questions[0].second.request;
    (void)show(inquiries, state, "a", shown(request, 0, true, false));
    InquiryActions end = show(inquiries, state, "a", shown(request, 1, true, true));
    if (how != "older") {
        CHECK(inspected(end) == nullptr);
        CHECK(inquiries.tick(state, kStart + 1s).empty());
        if (how == "gone") state.nodes.change("b", [](Node& node) { node.link = Link::kLost; });
        end = inquiries.tick(state, kStart + (how == "gone" ? 1s : 3s));
    }
    const Inspected* answer = inspected(end);
    REQUIRE(answer != nullptr);
    CHECK(answer->silent == std::vector<std::string>{"b"});
    CHECK(answer->world_size == 4);
    CHECK_THAT(answer->verdict, Contains("WAITING for ranks 2-3 (node b), which have shown no flight record"));
    CHECK(inquiries.tick(state, kStart + 10s).empty());
    CHECK(show(inquiries, state, "b", shown(request, 2, true, true)).empty());  // too late
}

TEST_CASE("ddpctl gets every flight record, or that of one rank, and the reason when no workers run", "[daemon]") {
    Inquiries inquiries;
    State state = running();
    const auto asked = to_agents<RequestRecords>(inquiries.inspect(state, kInspector, {1, Rank{2}, 2'000}, kStart));
    REQUIRE(asked.size() == 1);
    CHECK(asked[0].first == "b");
    CHECK(asked[0].second.rank == Rank{2});
    CHECK(asked[0].second.operations == 2'000);
    // A node's record of another node's rank is ignored.
    CHECK(show(inquiries, state, "b", shown(asked[0].second.request, 0, true, false)).empty());
    const InquiryActions end = show(inquiries, state, "b", shown(asked[0].second.request, 2, true, true));
    REQUIRE(end.size() == 2);
    CHECK(std::get<RecordReply>(std::get<ToInspector>(end[0]).message).record.rank == Rank{2});
    CHECK(inspected(end)->verdict == "");
    CHECK(inspected(end)->silent.empty());

    CHECK(inspected(inquiries.inspect(state, kInspector, {1, Rank{9}, 1}, kStart)) != nullptr);  // no such rank
    const auto again = to_agents<RequestRecords>(inquiries.inspect(state, kInspector, {1, {}, 16}, kStart));
    CHECK(inquiries.leave(state, kInspector).empty());
    CHECK(show(inquiries, state, "b", shown(again[0].second.request, 2, true, true)).empty());

    state.phase = Phase::kGathering;
    state.explanation.message.reason = "1 of 2 nodes are here";
    const InquiryActions none = inquiries.inspect(state, kInspector, {1, {}, 16}, kStart);
    REQUIRE(inspected(none) != nullptr);
    CHECK(inspected(none)->world_size == 0);
    CHECK(inspected(none)->verdict == "no workers run: 1 of 2 nodes are here");
}

TEST_CASE("a job that makes progress is reported as such", "[daemon]") {
    Inquiries inquiries;
    const State state = running();
    const auto asked = to_agents<RequestRecords>(inquiries.inspect(state, kInspector, {1, {}, 16}, kStart));
    const std::uint64_t request = asked[0].second.request;
    InquiryActions end;
    for (int rank = 0; rank < 4; ++rank)
        end = show(inquiries, state, rank < 2 ? "a" : "b", shown(request, rank, false, rank % 2 == 1));
    REQUIRE(inspected(end) != nullptr);
    CHECK(inspected(end)->verdict == "RUNNING: no rank has waited in one operation for 5 s");
}

TEST_CASE("programs that write no flight record are not reported as making progress", "[daemon]") {
    const bool answers = GENERATE(true, false);
    Inquiries inquiries;
    const State state = running();
    const auto asked = to_agents<RequestRecords>(inquiries.inspect(state, kInspector, {1, {}, 16}, kStart));
    InquiryActions end;
    for (int rank = 0; rank < 4; ++rank) {
        RecordReply one = shown(asked[0].second.request, rank, false, rank % 2 == 1);
        one.record.view = {};
        if (!answers) one.record.process.reset();
        end = show(inquiries, state, rank < 2 ? "a" : "b", one);
    }
    REQUIRE(inspected(end) != nullptr);
    CHECK_THAT(inspected(end)->verdict, Catch::StartsWith(answers ? "NOTHING IS KNOWN: no rank has a flight record"
                                                                  : "NOTHING IS KNOWN: no node has answered"));
}

TEST_CASE("a job is not reported as making progress when a rank is stopped or deadlines pass, however short these are",
          "[daemon]") {
    Inquiries inquiries;
    const State state = running();
    const auto [failed, stopped] = GENERATE(table<bool, bool>({{true, false}, {false, true}, {true, true}}));
    CAPTURE(failed, stopped);
    const auto asked = to_agents<RequestRecords>(inquiries.inspect(state, kInspector, {1, {}, 16}, kStart));
    InquiryActions end;
    for (int rank = 0; rank < 4; ++rank) {
        RecordReply one = shown(asked[0].second.request, rank, failed && rank != 3, rank % 2 == 1);
        one.record.pid = 70 + rank;
        if (rank == 3 && stopped) one.record.process = ProcessState::kStopped;
        for (RecordedOperation& operation : one.record.view.operations) {
            operation.queued_ago = 3s;
            operation.started_ago = operation.waited_ago = 3s;
            operation.ended_ago = 1s;
            operation.failed = operation.timed_out = true;
        }
        end = show(inquiries, state, rank < 2 ? "a" : "b", one);
    }
    REQUIRE(inspected(end) != nullptr);
    const std::string verdict = inspected(end)->verdict;
    if (failed)
        CHECK_THAT(verdict, Catch::StartsWith("A deadline has passed in the last 10 s: LAGGING rank 3 (node b)"));
    if (failed && stopped)
        CHECK_THAT(verdict, Catch::EndsWith("its process 73 is stopped (a signal, a debugger): kill -CONT 73"));
    if (!failed)
        CHECK(verdict ==
              "STOPPED rank 3 (node b): its process 73 is stopped (a signal, a debugger): kill -CONT 73; no rank has "
              "waited in one operation for 5 s");
}

TEST_CASE("the line on stopped processes of several nodes says which is where", "[daemon]") {
    Inquiries inquiries;
    const State state = running();
    const auto asked = to_agents<RequestRecords>(inquiries.inspect(state, kInspector, {1, {}, 16}, kStart));
    InquiryActions end;
    for (int rank = 0; rank < 4; ++rank) {
        RecordReply one = shown(asked[0].second.request, rank, false, rank % 2 == 1);
        one.record.pid = 70 + rank;
        if (rank != 0) one.record.process = ProcessState::kStopped;
        end = show(inquiries, state, rank < 2 ? "a" : "b", one);
    }
    REQUIRE(inspected(end) != nullptr);
    CHECK_THAT(
        inspected(end)->verdict,
        Contains(": their processes are stopped (a signal, a debugger): kill -CONT 71 (node a), 72 73 (node b); no"));
}
