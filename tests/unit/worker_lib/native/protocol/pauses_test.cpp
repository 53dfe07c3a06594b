// Pauses: which gaps between two looks are pauses, and where they move limits.

#include "worker_lib/src/native/protocol/pauses.hpp"

#include "tests/catch.hpp"
#include "worker_lib/src/native/protocol/deadlines.hpp"

using namespace ddp::detail;
using namespace std::chrono_literals;

namespace {

const ddprun::TimePoint kStart{1000s};

/// The pauses of a rank that has called something at kStart, and began to wait at once.
Pauses waiting() {
    Pauses pauses;
    pauses.begin(kStart, kStart);
    return pauses;
}

}  // namespace

TEST_CASE("only a long gap between two looks is a pause", "[native][unit]") {
    Pauses pauses = waiting();
    CHECK(pauses.look(kStart + kSilence / 2) == 0ms);
    CHECK(pauses.look(kStart + kSilence / 2 + 1s) == 1s - kSilence / 2);
    pauses.begin(kStart + 10s, kStart + 10s);  // the time between two waits is none
    CHECK(pauses.look(kStart + 10s) == 0ms);
}

TEST_CASE("a limit in a short pause moves to its end, others stay", "[native][unit]") {
    Pauses pauses = waiting();
    (void)pauses.look(kStart + 300ms);
    CHECK(pauses.limit(kStart + 100ms, 0ms, kStart) == kStart + 300ms);
    CHECK(pauses.limit(kStart + 100ms, 250ms, kStart) == kStart + 350ms);
    CHECK(pauses.limit(kStart + 310ms, 0ms, kStart) == kStart + 310ms);
    CHECK(pauses.limit(kStart, 0ms, kStart) == kStart);
}

TEST_CASE("after a long pause as much is left of a deadline as before, but no more than the pause took",
          "[native][unit]") {
    Pauses pauses = waiting();
    (void)pauses.look(kStart + 10s);
    CHECK(pauses.limit(kStart + 4s, 0ms, kStart) == kStart + 14s);
    CHECK(pauses.limit(kStart + 10s, 0ms, kStart) == kStart + 20s);
    CHECK(pauses.limit(kStart + 11s, 0ms, kStart) == kStart + 20s);
    CHECK(pauses.limit(kStart + 30s, 0ms, kStart) == kStart + 30s);
    CHECK(pauses.limit(ddprun::TimePoint::max(), 1s, kStart) == ddprun::TimePoint::max());
}

TEST_CASE("after a long pause at least the time for reports is left, and limits keep their distances",
          "[native][unit]") {
    Pauses pauses = waiting();
    (void)pauses.look(kStart + 10s);
    CHECK(pauses.limit(kStart + 1ms, 0ms, kStart) == kStart + 10s + kReporting);
    CHECK(pauses.limit(kStart + 1ms, kNetworkExtra, kStart) == kStart + 10s + kReporting + kNetworkExtra);
    // It had passed before, but the extra times had not.
    CHECK(pauses.limit(kStart, 0ms, kStart) == kStart + 10s);
    CHECK(pauses.limit(kStart, kNetworkExtra, kStart) == kStart + 10s + kNetworkExtra);
    CHECK(pauses.limit(kStart, kFinishingExtra, kStart) == kStart + 10s + kFinishingExtra);
}

TEST_CASE("a pause counts from the call on, and not for what is called after it", "[native][unit]") {
    Pauses pauses = waiting();
    (void)pauses.look(kStart + 10s);
    CHECK(pauses.limit(kStart + 8s, 0ms, kStart + 6s) == kStart + 12s);  // called by another thread before that stopped
    CHECK(pauses.limit(kStart + 12s, 0ms, kStart + 10s) == kStart + 12s);
}

TEST_CASE("pauses in the middle of a wait add up, also over several operations", "[native][unit]") {
    Pauses pauses = waiting();
    (void)pauses.look(kStart + 10s);
    (void)pauses.look(kStart + 10100ms);
    pauses.begin(kStart, kStart + 10100ms);  // the next one of a queue
    (void)pauses.look(kStart + 10200ms);
    (void)pauses.look(kStart + 20200ms);
    CHECK(pauses.limit(kStart + 4s, 0ms, kStart) == kStart + 20200ms + 3800ms);
}

TEST_CASE("the time between call and wait may be that of a queue", "[native][unit]") {
    Pauses pauses;
    pauses.begin(kStart, kStart + 10s);
    CHECK(pauses.limit(kStart + 4s, 0ms, kStart) == kStart + 10s + 2 * kReporting);
    CHECK(pauses.limit(kStart + 20s, 0ms, kStart) == kStart + 20s);
}

TEST_CASE("however many short pauses follow, a long one is not forgotten", "[native][unit]") {
    Pauses pauses = waiting();
    auto now = kStart + 3600s;
    (void)pauses.look(now);
    for (int i = 0; i < 100; ++i) (void)pauses.look(now += 300ms);
    CHECK(pauses.limit(kStart + 1800s, 0ms, kStart) == kStart + 5400s);
}

TEST_CASE("pauses without end do not move a limit without end", "[native][unit]") {
    for (const ddprun::Duration gap : {ddprun::Duration(300ms), ddprun::Duration(1s)}) {
        Pauses pauses = waiting();
        auto now = kStart;
        int looks = 0;
        while (pauses.limit(kStart + 5500ms, 0ms, kStart) > now && ++looks < 1000) (void)pauses.look(now += gap);
        CHECK(looks < 50);
    }
}
