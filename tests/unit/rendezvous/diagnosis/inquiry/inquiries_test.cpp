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
