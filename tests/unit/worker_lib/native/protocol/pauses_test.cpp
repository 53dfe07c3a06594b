// Pauses: which gaps between two looks are pauses, and where they move a deadline.

#include "worker_lib/src/native/protocol/pauses.hpp"

#include "tests/catch.hpp"
#include "worker_lib/src/native/protocol/deadlines.hpp"

using namespace ddp::detail;
using namespace std::chrono_literals;

namespace {

const ddprun::TimePoint kStart{1000s};

}  // namespace

TEST_CASE("only a long gap between two looks is a pause", "[native][unit]") {
    Pauses pauses;
    pauses.begin(kStart);
    CHECK(pauses.look(kStart + kSilence / 2) == 0ms);
    CHECK(pauses.look(kStart + kSilence / 2 + 1s) == 1s - kSilence / 2);
    pauses.begin(kStart + 10s);  // the time between two waits
    CHECK(pauses.look(kStart + 10s) == 0ms);
}

TEST_CASE("as much is left of a limit after a pause as was before", "[native][unit]") {
    Pauses pauses;
    pauses.begin(kStart);
    (void)pauses.look(kStart + 3s);
    CHECK(pauses.moved(kStart + 1s, 500ms) == kStart + 4s);
    CHECK(pauses.moved(kStart + 2s, 500ms) == kStart + 5s);
    CHECK(pauses.moved(kStart + 4s, 500ms) == kStart + 4s);
    CHECK(pauses.moved(ddprun::TimePoint::max(), 500ms) == ddprun::TimePoint::max());
}

TEST_CASE("after a pause a moment is left to read what has arrived", "[native][unit]") {
    Pauses pauses;
    pauses.begin(kStart);
    (void)pauses.look(kStart + 3s);
    for (const auto limit : {-1s, 0s, 3s}) CHECK(pauses.moved(kStart + limit, 500ms) == kStart + 3500ms);
    (void)pauses.look(kStart + 3s + kSilence / 2 + 100ms);  // a short one: the others waited for the whole of it
    CHECK(pauses.moved(kStart, 500ms) == kStart + 3s + kSilence / 2 + 200ms);
}

TEST_CASE("pauses far from any limit do not use up those that count", "[native][unit]") {
    Pauses pauses;
    pauses.begin(kStart);
    const auto limit = kStart + 50s;
    auto now = kStart;
    for (int i = 0; i < 100; ++i) {
        if (pauses.look(now += 300ms) > 0ms) CHECK(pauses.moved(limit, 500ms) == limit);
    }
    (void)pauses.look(kStart + 60s);
    CHECK(pauses.moved(limit, 500ms) == kStart + 80s);
}

TEST_CASE("a pause counts once, however many limits it moves", "[native][unit]") {
    Pauses pauses;
    pauses.begin(kStart);
    (void)pauses.look(kStart + 3s);
    for (int i = 0; i < 100; ++i) CHECK(pauses.moved(kStart + 1s, 500ms) == kStart + 4s);
}

TEST_CASE("pauses without end do not postpone a limit without end", "[native][unit]") {
    Pauses pauses;
    pauses.begin(kStart);
    auto now = kStart;
    auto limit = kStart + 1s;
    const auto look = [&](ddprun::Duration after) {
        if (pauses.look(now += after) > 0ms) limit = pauses.moved(limit, 500ms);
    };
    while (now < kStart + 30s) look(300ms);
    CHECK(limit < kStart + 10s);
    look(60s);  // later, one counts again
    CHECK(limit > now);
}
