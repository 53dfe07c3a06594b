// What the daemon asks when a worker is stuck, has failed or was killed.
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/rendezvous/inquiries_fixture.hpp"

using namespace ddprun;
using namespace ddprun::coordinator;
using namespace ddprun::daemon;
using namespace std::chrono_literals;
using Catch::Contains;

TEST_CASE("a stall is asked about once, of every node, and the verdict goes to all of them", "[daemon]") {
    Inquiries inquiries;
    const State state = running();
    const auto asked = to_agents<ShowBoards>(inquiries.stalled(state, "a", stall(), kStart));
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

    // A rank that has come further waits for the same one: asked about, but not told again.
    CHECK(inquiries.stalled(state, "a", stall(2), kStart).empty());
    CHECK(inquiries.tick(state, kStart + 4s).empty());
    CHECK(answer(inquiries, state, inquiries.tick(state, kStart + 5s), kStart + 5s).empty());
    CHECK(inquiries.tick(state, kStart + 1h).empty());  // that it stands still was said
}

TEST_CASE("a burst of stalls is one inquiry, and one more when that is over", "[daemon]") {
    Inquiries inquiries;
    const State state = running();
    const InquiryActions asked = inquiries.stalled(state, "a", stall(), kStart);
    for (std::uint64_t seq = 2; seq < 1'000; ++seq) CHECK(inquiries.stalled(state, "b", stall(seq), kStart).empty());
    CHECK_FALSE(answer(inquiries, state, asked, kStart).empty());
    for (std::uint64_t seq = 2; seq < 1'000; ++seq) CHECK(inquiries.stalled(state, "b", stall(seq), kStart).empty());
    const InquiryActions again = inquiries.tick(state, kStart + 5s);
    CHECK(to_agents<ShowBoards>(again).size() == 2);
    CHECK(answer(inquiries, state, again, kStart + 5s).empty());
    CHECK(inquiries.tick(state, kStart + 6s).empty());
}

TEST_CASE("however often ranks are late, a later stall is told; that of the same ranks after a while", "[daemon]") {
    Inquiries inquiries;
    const State state = running();
    TimePoint now = kStart;
    int told = 0;
    for (std::uint64_t seq = 1; seq <= 2'000; ++seq, now += 40s) {  // each in another operation
        const InquiryActions asked = inquiries.stalled(state, "a", stall(seq), now);
        const auto question = to_agents<ShowBoards>(asked);
        REQUIRE(question.size() == 2);
        InquiryActions end;
        for (int rank = 0; rank < 4; ++rank) {
            ShownBoard one = shown(question[0].second.request, rank, rank != 3, rank % 2 == 1);
            one.board.view.groups[0].queued = seq - (rank == 3 ? 1 : 0);
            if (rank != 3) one.board.view.operations[0].seq = seq;
            end = show(inquiries, state, rank < 2 ? "a" : "b", one, now);
        }
        told += end.empty() ? 0 : 1;
    }
    CHECK(told > 5);
    CHECK(told < 40);
    const InquiryActions other = answer(inquiries, state, inquiries.stalled(state, "a", stall(5'000), now), now, 2);
    CHECK_THAT(to_agents<Notice>(other).at(0).second.text, Catch::StartsWith("LAGGING rank 2"));

    // The same ranks again, but now for good: held back, and told when the time has come.
    const InquiryActions held =
        answer(inquiries, state, inquiries.stalled(state, "a", stall(), now + 1min), now + 1min);
    CHECK(held.empty());
    const InquiryActions later = inquiries.tick(state, now + 2h);
    CHECK_FALSE(answer(inquiries, state, later, now + 2h).empty());
}

TEST_CASE("in a group that only sends and receives a later stall of the same ranks is told, too", "[daemon]") {
    Inquiries inquiries;
    const State state = running();
    const auto stalls = [&](std::uint64_t transfer, TimePoint now, bool asked_already = false) {
        const InquiryActions asked =
            asked_already ? inquiries.tick(state, now)
                          : inquiries.stalled(state, "a", {Generation{5}, Rank{0}, "world", 0, transfer, 31s}, now);
        const auto question = to_agents<ShowBoards>(asked);
        REQUIRE(question.size() == 2);
        InquiryActions end;
        for (int rank = 0; rank < 4; ++rank) {
            ShownBoard one = shown(question[0].second.request, rank, rank == 0, rank % 2 == 1);
            if (rank == 0) {
                BoardOperation& operation = one.board.view.operations[0];
                operation.op = "recv";
                operation.seq = 0;  // there has never been a collective
                operation.p2p_seq = transfer;
                operation.peer = 3;
                one.board.view.groups[0].queued = one.board.view.groups[0].started = 0;
            }
            end = show(inquiries, state, rank < 2 ? "a" : "b", one, now);
        }
        return !end.empty();
    };
    CHECK(stalls(1, kStart));
    CHECK_FALSE(stalls(1, kStart + 10s));         // the same
    CHECK(stalls(2, kStart + 5min));              // another, when those before are long over
    CHECK_FALSE(stalls(3, kStart + 5min + 40s));  // soon after: held back …
    CHECK(stalls(3, kStart + 1h, true));          // … and told if it does not end
}

TEST_CASE("a stall that is over when the boards have come is not told, and one of another generation not asked about",
          "[daemon]") {
    Inquiries inquiries;
    State state = running();
    Stalled old = stall();
    old.generation = Generation{4};
    CHECK(inquiries.stalled(state, "a", old, kStart).empty());
    CHECK(inquiries.stalled(state, "stranger", stall(), kStart).empty());
    const auto asked = to_agents<ShowBoards>(inquiries.stalled(state, "a", stall(), kStart));
    for (const int rank : {0, 1})
        (void)show(inquiries, state, rank < 2 ? "a" : "b", shown(asked[0].second.request, rank, false, rank == 1));
    CHECK(show(inquiries, state, "b", shown(asked[0].second.request, 2, false, true)).empty());
    state.group.generation = Generation{6};
    CHECK(inquiries.stalled(state, "a", stall(), kStart).empty());
}

TEST_CASE("a failure by a deadline is judged at once and once, whatever else is asked about", "[daemon]") {
    Inquiries inquiries;
    State state = running();
    (void)inquiries.stalled(state, "a", stall(), kStart);
    Stalled over = stall();
    over.timed_out = true;
    const InquiryActions asked = inquiries.stalled(state, "a", over, kStart);
    REQUIRE_FALSE(asked.empty());
    CHECK(std::get<JudgingFailure>(asked[0]).generation == Generation{5});
    CHECK(inquiries.stalled(state, "b", over, kStart).empty());  // a peer that failed with it
    const bool goes_on = GENERATE(true, false);
    if (!goes_on) state.phase = Phase::kStopping;
    const auto question = to_agents<ShowBoards>(asked);
    REQUIRE(question.size() == 2);
    InquiryActions end;
    for (int rank = 0; rank < 4; ++rank) {
        ShownBoard one = shown(question[0].second.request, rank, rank != 3, rank % 2 == 1);
        if (rank != 3) {
            BoardOperation& operation = one.board.view.operations[0];
            operation.queued_ago = 31s;
            operation.ended_ago = 1s;
            operation.failed = operation.timed_out = true;
        }
        end = show(inquiries, state, rank < 2 ? "a" : "b", one);
    }
    REQUIRE_FALSE(end.empty());
    CHECK_THAT(std::get<JudgedFailure>(end[0]).text, Catch::StartsWith("LAGGING rank 3 (node b)"));
    CHECK(to_agents<Notice>(end).size() == (goes_on ? 2 : 0));  // else it stands in the verdict
}

namespace {

constexpr std::chrono::milliseconds kNot{-1};

/// All but rank 3 failed of a barrier of the world, and of one of their other group, so long ago.
std::string answer_timeouts(Inquiries& inquiries, const InquiryActions& asked, TimePoint now,
                            std::chrono::milliseconds world_ago, std::chrono::milliseconds other_ago) {
    const auto question = to_agents<ShowBoards>(asked);
    REQUIRE(question.size() == 2);
    InquiryActions end;
    for (int rank = 0; rank < 4; ++rank) {
        ShownBoard one = shown(question[0].second.request, rank, rank != 3, rank % 2 == 1);
        BoardView& view = one.board.view;
        view.groups.push_back(view.groups[0]);
        view.groups[1].name = "other";
        const std::vector<BoardOperation> barrier = std::exchange(view.operations, {});
        for (const auto& [group, ago] : {std::pair(0, world_ago), std::pair(1, other_ago)}) {
            if (rank == 3 || ago == kNot) continue;
            BoardOperation& operation = view.operations.emplace_back(barrier[0]);
            operation.id = static_cast<std::uint64_t>(group) + 1;
            operation.group = group;
            operation.started_ago = operation.waited_ago = operation.queued_ago = ago + 30s;
            operation.ended_ago = ago;
            operation.failed = operation.timed_out = true;
        }
        end = show(inquiries, running(), rank < 2 ? "a" : "b", one, now);
    }
    REQUIRE_FALSE(end.empty());
    CHECK(to_agents<Notice>(end).empty() == std::get<JudgedFailure>(end[0]).text.empty());
    return std::get<JudgedFailure>(end[0]).text;
}

Stalled over() {
    Stalled over = stall();
    over.timed_out = true;
    return over;
}

}  // namespace

TEST_CASE("a deadline that passes soon after another is told, too, and once", "[daemon]") {
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
        {5s, 4s},       // … after a peer that began later has failed of the first
        {kNot, 6500ms}  // … just after the boards were read
    }));
    CAPTURE(world_ago.count(), other_ago.count());
    const std::string told = answer_timeouts(inquiries, second, kStart + 6s, world_ago, other_ago);
    if (other_ago == kNot) CHECK(told.empty());
    if (other_ago != kNot) CHECK_THAT(told, Catch::StartsWith("LAGGING rank 3") && Contains("group 'other'"));
    CHECK(inquiries.tick(state, kStart + 30s).empty());
}

TEST_CASE("however many deadlines pass, none is told twice", "[daemon]") {
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

TEST_CASE("who does not show its boards does not keep a failure by a deadline from being concluded", "[daemon]") {
    Inquiries inquiries;
    const State state = running();
    (void)inquiries.stalled(state, "a", over(), kStart);
    CHECK(inquiries.tick(state, kStart + 900ms).empty());
    const InquiryActions end = inquiries.tick(state, kStart + 1s);
    REQUIRE(end.size() == 1);
    CHECK(std::get<JudgedFailure>(end[0]).text == "");
}

TEST_CASE("of a worker that was killed is asked what it was in, once, and who waited for it", "[daemon]") {
    Inquiries inquiries;
    State state = running();
    CHECK(inquiries.failed(state, kStart).empty());  // nobody has
    state.phase = Phase::kStopping;
    FailureReport& failure = state.cause.failure.emplace();
    failure.rank = Rank{3};
    failure.host = "b";
    failure.pid = 71;
    failure.status = {ExitStatus::Kind::kSignaled, 9, false};
    CHECK(inquiries.failed(state, kStart).empty());  // it writes no board
    failure.activity = "had done no collective";
    const InquiryActions asked = inquiries.failed(state, kStart);
    REQUIRE_FALSE(asked.empty());
    CHECK(std::get<JudgingFailure>(asked[0]).generation == Generation{5});
    CHECK(inquiries.failed(state, kStart).empty());  // a peer's failure that changes nothing
    const auto question = to_agents<ShowBoards>(asked);
    REQUIRE(question.size() == 2);
    const bool another = GENERATE(false, true);
    if (another) failure.rank = Rank{2};             // what the first one failed of, heard of later
    CHECK(inquiries.failed(state, kStart).empty());  // one at a time
    InquiryActions end;
    for (int rank = 0; rank < 4; ++rank)
        end = show(inquiries, state, rank < 2 ? "a" : "b",
                   shown(question[0].second.request, rank, rank < 2, rank % 2 == 1));
    REQUIRE(end.size() == 1);
    const auto& judged = std::get<JudgedFailure>(end[0]);
    const std::string detail =
        "had done no collective; ranks 0-1 (node a) waited for it in #1 barrier of group 'world'";
    CHECK(judged.dead == failure.rank);
    CHECK(judged.detail == detail);
    CHECK(judged.text ==
          (another ? "DEAD rank 2 (node b, killed by SIGKILL): " : "DEAD rank 3 (node b, killed by SIGKILL): ") +
              detail);
    CHECK(inquiries.failed(state, kStart).empty());
    failure.rank = Rank{0};
    CHECK_FALSE(inquiries.failed(state, kStart).empty());  // but now another one is taken for the cause
}
