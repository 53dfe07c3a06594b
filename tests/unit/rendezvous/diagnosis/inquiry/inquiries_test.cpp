// Inquiries about stalls; those about failures are in inquiries_failure_test.cpp.
#include <chrono>
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

TEST_CASE("a stall leads to one request to every node, and the verdict goes to all of them", "[daemon]") {
    Inquiries inquiries;
    const State state = running();
    const auto asked = to_agents<RequestRecords>(inquiries.stalled(state, "a", stall(), kStart));
    REQUIRE(asked.size() == 2);
    CHECK_FALSE(asked[0].second.rank);
    CHECK(inquiries.stalled(state, "b", stall(), kStart).empty());  // the same operation, seen by another node

    const std::uint64_t request = asked[0].second.request;
    CHECK(show(inquiries, state, "a", shown(request, 0, true, false)).empty());
    CHECK(show(inquiries, state, "a", shown(request, 1, true, true)).empty());
    CHECK(show(inquiries, state, "b", shown(request, 2, true, false)).empty());
    const InquiryActions end = show(inquiries, state, "b", shown(request, 3, false, true));
    const auto notices = to_agents<Notice>(end);
    REQUIRE(notices.size() == 2);
    CHECK_THAT(notices[0].second.text, Catch::StartsWith("LAGGING rank 3 (node b)"));
    CHECK(notices[0].second.generation == Generation{5});
    CHECK(std::get<Conclusion>(end.back()).text == notices[1].second.text);

    // A rank in a later operation waits for the same one: requested, but not reported again.
    CHECK(inquiries.stalled(state, "a", stall(2), kStart).empty());
    CHECK(inquiries.tick(state, kStart + 4s).empty());
    CHECK(answer(inquiries, state, inquiries.tick(state, kStart + 5s), kStart + 5s).empty());
    CHECK(inquiries.tick(state, kStart + 1h).empty());  // it was reported
}

TEST_CASE("a burst of stalls is one inquiry, and one more when that is over", "[daemon]") {
    Inquiries inquiries;
    const State state = running();
    const InquiryActions asked = inquiries.stalled(state, "a", stall(), kStart);
    for (std::uint64_t seq = 2; seq < 1'000; ++seq) CHECK(inquiries.stalled(state, "b", stall(seq), kStart).empty());
    CHECK_FALSE(answer(inquiries, state, asked, kStart).empty());
    for (std::uint64_t seq = 2; seq < 1'000; ++seq) CHECK(inquiries.stalled(state, "b", stall(seq), kStart).empty());
    const InquiryActions again = inquiries.tick(state, kStart + 5s);
    CHECK(to_agents<RequestRecords>(again).size() == 2);
    CHECK(answer(inquiries, state, again, kStart + 5s).empty());
    CHECK(inquiries.tick(state, kStart + 6s).empty());
}

TEST_CASE("however often ranks are late, a later stall is reported, that of the same ranks after a while", "[daemon]") {
    Inquiries inquiries;
    const State state = running();
    TimePoint now = kStart;
    int reported = 0;
    for (std::uint64_t seq = 1; seq <= 2'000; ++seq, now += 40s) {  // each in another operation
        const InquiryActions asked = inquiries.stalled(state, "a", stall(seq), now);
        const auto question = to_agents<RequestRecords>(asked);
        REQUIRE(question.size() == 2);
        InquiryActions end;
        for (int rank = 0; rank < 4; ++rank) {
            RecordReply one = shown(question[0].second.request, rank, rank != 3, rank % 2 == 1);
            one.record.view.groups[0].queued = seq - (rank == 3 ? 1 : 0);
            if (rank != 3) one.record.view.operations[0].seq = seq;
            end = show(inquiries, state, rank < 2 ? "a" : "b", one, now);
        }
        reported += end.empty() ? 0 : 1;
    }
    CHECK(reported > 5);
    CHECK(reported < 40);
    const InquiryActions other = answer(inquiries, state, inquiries.stalled(state, "a", stall(5'000), now), now, 2);
    CHECK_THAT(to_agents<Notice>(other).at(0).second.text, Catch::StartsWith("LAGGING rank 2"));

    // The same ranks again, but now without end: held back, and reported when the time has come.
    const InquiryActions held =
        answer(inquiries, state, inquiries.stalled(state, "a", stall(), now + 1min), now + 1min);
    CHECK(held.empty());
    const InquiryActions later = inquiries.tick(state, now + 2h);
    CHECK_FALSE(answer(inquiries, state, later, now + 2h).empty());
}

TEST_CASE("in a group that only sends and receives a later stall of the same ranks is reported, too", "[daemon]") {
    Inquiries inquiries;
    const State state = running();
    const auto stalls = [&](std::uint64_t transfer, TimePoint now, bool asked_already = false) {
        const InquiryActions asked =
            asked_already ? inquiries.tick(state, now)
                          : inquiries.stalled(state, "a", {Generation{5}, Rank{0}, "world", 0, transfer, 31s}, now);
        const auto question = to_agents<RequestRecords>(asked);
        REQUIRE(question.size() == 2);
        InquiryActions end;
        for (int rank = 0; rank < 4; ++rank) {
            RecordReply one = shown(question[0].second.request, rank, rank == 0, rank % 2 == 1);
            if (rank == 0) {
                RecordedOperation& operation = one.record.view.operations[0];
                operation.op = "recv";
                operation.seq = 0;  // there has never been a collective
                operation.p2p_seq = transfer;
                operation.peer = 3;
                one.record.view.groups[0].queued = one.record.view.groups[0].started = 0;
            }
            end = show(inquiries, state, rank < 2 ? "a" : "b", one, now);
        }
        return !end.empty();
    };
    CHECK(stalls(1, kStart));
    CHECK_FALSE(stalls(1, kStart + 10s));         // the same
    CHECK(stalls(2, kStart + 5min));              // another, when those before are long over
    CHECK_FALSE(stalls(3, kStart + 5min + 40s));  // soon after: held back …
    CHECK(stalls(3, kStart + 1h, true));          // … and reported if it does not end
}

namespace {

/// A report that rank 0 gets no answer from a host.
Stalled host_is_silent() {
    Stalled report = stall();
    report.waited = 3s;
    report.unreachable = true;
    return report;
}

/// All four ranks answer: rank `from` gets no answer from the host of rank `to`. The agent of node b answers only if
/// `both`; otherwise the inquiry ends 3 s later.
InquiryActions answer_silence(Inquiries& inquiries, const State& state, const InquiryActions& question, TimePoint now,
                              int from, int to, bool both = true) {
    const auto asked = to_agents<RequestRecords>(question);
    REQUIRE(asked.size() == 2);
    InquiryActions end;
    for (int rank = 0; rank < (both ? 4 : 2); ++rank) {
        RecordReply one = shown(asked[0].second.request, rank, true, rank % 2 == 1);
        if (rank == from) one.record.view.operations[0].unreachable = to;
        end = show(inquiries, state, rank < 2 ? "a" : "b", one, now);
    }
    return both ? end : inquiries.tick(state, now + kAnswerTimeout);
}

/// Does the same with rank 3 on a third node, c. Returns the number of notices.
std::size_t answer_silence_of_three(Inquiries& inquiries, const State& state, const InquiryActions& question,
                                    TimePoint now, int from, int to) {
    const auto asked = to_agents<RequestRecords>(question);
    REQUIRE(asked.size() == 2);
    InquiryActions end;
    for (int rank = 0; rank < 4; ++rank) {
        RecordReply one = shown(asked[0].second.request, rank, true, rank % 2 == 1);
        if (rank == 3) one.record.host = "c";
        if (rank == from) one.record.view.operations[0].unreachable = to;
        end = show(inquiries, state, rank < 2 ? "a" : "b", one, now);
    }
    return to_agents<Notice>(end).size();
}

/// Does the same, and once more a second later, when the silence is confirmed.
InquiryActions confirm_silence(Inquiries& inquiries, const State& state, const InquiryActions& question, TimePoint now,
                               int from, int to) {
    CHECK(answer_silence(inquiries, state, question, now, from, to).empty());
    return answer_silence(inquiries, state, inquiries.tick(state, now + 1s), now + 1s, from, to);
}

}  // namespace

TEST_CASE("a host that does not answer is reported as a cut link or not at all", "[daemon]") {
    Inquiries inquiries;
    const State state = running();
    const bool cut = GENERATE(true, false);
    const InquiryActions asked = inquiries.stalled(state, "a", host_is_silent(), kStart);
    const InquiryActions end = cut ? confirm_silence(inquiries, state, asked, kStart, 0, 2)
                                   : answer(inquiries, state, asked, kStart);  // rank 3 has not arrived
    const auto notices = to_agents<Notice>(end);
    REQUIRE(notices.size() == (cut ? 2 : 0));
    if (cut) CHECK_THAT(notices[0].second.text, Catch::StartsWith("LINK node a and node b cannot reach each other"));
}

TEST_CASE("a host that was paused when the inquiry was opened is not reported as a cut link", "[daemon]") {
    Inquiries inquiries;
    const State state = running();
    const InquiryActions first = inquiries.stalled(state, "a", host_is_silent(), kStart);
    CHECK(answer_silence(inquiries, state, first, kStart + 2s, 0, 2).empty());  // node b goes on, and answers
    const InquiryActions second = inquiries.tick(state, kStart + 3s);
    CHECK(answer(inquiries, state, second, kStart + 3s).empty());
    CHECK(inquiries.tick(state, kStart + 1h).empty());
    const InquiryActions later = inquiries.stalled(state, "a", host_is_silent(), kStart + 1h);
    CHECK(answer_silence(inquiries, state, later, kStart + 1h, 0, 2).empty());
}

TEST_CASE("a silent host that is noticed after a stall, or by its inquiry, does not keep the stall from being reported",
          "[daemon]") {
    Inquiries inquiries;
    const State state = running();
    SECTION("the stall is remembered when the silence is reported") {
        TimePoint now = kStart;
        for (int i = 0; i < 5; ++i, now += 40s)  // nothing new, so the pause between inquiries grows to 30 s
            (void)answer(inquiries, state, inquiries.stalled(state, "a", stall(), now), now);
        now -= 40s;
        CHECK(inquiries.stalled(state, "a", stall(2), now + 2s).empty());
        const InquiryActions asked = inquiries.stalled(state, "a", host_is_silent(), now + 6s);
        const auto notices = to_agents<Notice>(answer(inquiries, state, asked, now + 6s, 2));
        REQUIRE(notices.size() == 2);
        CHECK_THAT(notices[0].second.text, Catch::StartsWith("LAGGING rank 2"));
    }
    SECTION("the inquiry about the stall shows the silence, for a moment or until it is reported") {
        const bool is_cut = GENERATE(true, false);
        const InquiryActions asked = inquiries.stalled(state, "a", stall(), kStart);
        if (is_cut) CHECK_FALSE(confirm_silence(inquiries, state, asked, kStart, 0, 2).empty());
        if (!is_cut) CHECK(answer_silence(inquiries, state, asked, kStart, 0, 2).empty());
        const TimePoint now = kStart + (is_cut ? 6s : 1s);
        const auto notices = to_agents<Notice>(answer(inquiries, state, inquiries.tick(state, now), now));
        REQUIRE(notices.size() == 2);
        CHECK_THAT(notices[0].second.text, Catch::StartsWith("LAGGING rank 3"));
    }
}

TEST_CASE("a cut link is reported once, whichever ranks notice it", "[daemon]") {
    Inquiries inquiries;
    const State state = running();
    const InquiryActions first = inquiries.stalled(state, "a", host_is_silent(), kStart);
    CHECK_FALSE(confirm_silence(inquiries, state, first, kStart, 0, 2).empty());
    CHECK(inquiries.stalled(state, "b", host_is_silent(), kStart + 1s).empty());
    const InquiryActions second = inquiries.tick(state, kStart + 6s);
    CHECK(answer_silence(inquiries, state, second, kStart + 6s, 3, 1).empty());
}

TEST_CASE("of several cut links that share a node one line is printed", "[daemon]") {
    Inquiries inquiries;
    const State state = running();
    TimePoint now = kStart;
    const auto lines = [&](int from, int to) {
        const InquiryActions asked = inquiries.stalled(state, "a", host_is_silent(), now);
        CHECK(answer_silence_of_three(inquiries, state, asked, now, from, to) == 0);
        now += 1s;
        const std::size_t printed =
            answer_silence_of_three(inquiries, state, inquiries.tick(state, now), now, from, to);
        now += 20s;
        return printed;
    };
    CHECK(lines(0, 2) == 2);  // one for each agent
    CHECK(lines(0, 3) == 0);  // node a again
    CHECK(lines(2, 3) == 2);  // which has nothing to do with node a
}

TEST_CASE("a host that does not answer is inquired about soon after other stalls, and until the link is named",
          "[daemon]") {
    Inquiries inquiries;
    const State state = running();
    TimePoint now = kStart;
    for (int i = 0; i < 5; ++i, now += 40s)  // nothing new, so the pause between inquiries grows to 30 s
        (void)answer(inquiries, state, inquiries.stalled(state, "a", stall(), now), now);
    now += -40s + 6s;
    const InquiryActions asked = inquiries.stalled(state, "a", host_is_silent(), now);
    CHECK(answer_silence(inquiries, state, asked, now, 0, 2, false).empty());  // node b's agent has not answered
    const InquiryActions again = inquiries.tick(state, now + 5s);
    CHECK_FALSE(confirm_silence(inquiries, state, again, now + 5s, 0, 2).empty());
}

TEST_CASE("a cut link is named although an agent does not answer the inquiry that would confirm it", "[daemon]") {
    Inquiries inquiries;
    const State state = running();
    const auto [from, to] = GENERATE(std::pair(0, 2), std::pair(2, 0));
    const InquiryActions first = inquiries.stalled(state, "a", host_is_silent(), kStart);
    CHECK(answer_silence(inquiries, state, first, kStart, from, to).empty());
    const InquiryActions second = inquiries.tick(state, kStart + 1s);
    (void)answer_silence(inquiries, state, second, kStart + 1s, from, to, false);
    SECTION("by the next one") {
        const InquiryActions third = inquiries.tick(state, kStart + 6s);
        CHECK(to_agents<Notice>(answer_silence(inquiries, state, third, kStart + 6s, from, to)).size() == 2);
    }
    SECTION("unless all answer that, and it does not show the link") {
        const InquiryActions third = inquiries.tick(state, kStart + 6s);
        CHECK(answer(inquiries, state, third, kStart + 6s).empty());
        CHECK(inquiries.tick(state, kStart + 1min).empty());
    }
}

TEST_CASE("links that differ in each inquiry are not named, and lead to two inquiries in 6 s at most", "[daemon]") {
    Inquiries inquiries;
    const State state = running();
    const InquiryActions first = inquiries.stalled(state, "a", host_is_silent(), kStart);
    CHECK(answer_silence_of_three(inquiries, state, first, kStart, 0, 2) == 0);
    int count = 1;
    for (TimePoint now = kStart + 1s; now < kStart + 1min; now += 1s) {
        const InquiryActions asked = inquiries.tick(state, now);
        if (asked.empty()) continue;
        const int to = count++ % 2 == 0 ? 2 : 3;
        CHECK(answer_silence_of_three(inquiries, state, asked, now, 0, to) == 0);
    }
    CHECK(count == 20);
}

TEST_CASE("a stall is inquired about once more when an agent has not answered and a host is silent", "[daemon]") {
    Inquiries inquiries;
    const State state = running();
    const InquiryActions first = inquiries.stalled(state, "a", stall(), kStart);
    (void)answer_silence(inquiries, state, first, kStart, 0, 2, false);
    const InquiryActions second = inquiries.tick(state, kStart + 5s);
    const auto notices = to_agents<Notice>(answer(inquiries, state, second, kStart + 5s));
    REQUIRE(notices.size() == 2);
    CHECK_THAT(notices[0].second.text, Catch::StartsWith("LAGGING rank 3"));
}

TEST_CASE(
    "a stall that is over when the flight records arrive is not reported, one of another generation not asked about",
    "[daemon]") {
    Inquiries inquiries;
    State state = running();
    Stalled old = stall();
    old.generation = Generation{4};
    CHECK(inquiries.stalled(state, "a", old, kStart).empty());
    CHECK(inquiries.stalled(state, "stranger", stall(), kStart).empty());
    const auto asked = to_agents<RequestRecords>(inquiries.stalled(state, "a", stall(), kStart));
    for (const int rank : {0, 1})
        (void)show(inquiries, state, rank < 2 ? "a" : "b", shown(asked[0].second.request, rank, false, rank == 1));
    CHECK(show(inquiries, state, "b", shown(asked[0].second.request, 2, false, true)).empty());
    state.group.generation = Generation{6};
    CHECK(inquiries.stalled(state, "a", stall(), kStart).empty());
}
