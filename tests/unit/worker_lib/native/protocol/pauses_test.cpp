// Pauses: which gaps between two looks count, and how they move a deadline.

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
    CHECK(pauses.limit_after(kStart) == kStart);
    CHECK(pauses.look(kStart + kSilence / 2 + 1s) == 1s - kSilence / 2);
    pauses.begin(kStart + 10s);  // the time between two waits
    CHECK(pauses.look(kStart + 10s) == 0ms);
}

TEST_CASE("a limit that passes in a pause is extended to its end, one that is later is not", "[native][unit]") {
    Pauses pauses;
    pauses.begin(kStart);
    (void)pauses.look(kStart + 3s);
    CHECK(pauses.limit_after(kStart + 1s) == kStart + 3s);
    CHECK(pauses.limit_after(kStart + 4s) == kStart + 4s);
    CHECK(pauses.limit_after(kStart + 1s, 1s) == kStart + 4s);
    CHECK(pauses.limit_after(kStart + 3500ms, 1s) == kStart + 4s);
    CHECK(pauses.limit_after(ddprun::TimePoint::max(), 1s) == ddprun::TimePoint::max());
}

TEST_CASE("pauses without end do not postpone a limit without end", "[native][unit]") {
    Pauses pauses;
    pauses.begin(kStart);
    auto now = kStart;
    while (now < kStart + 30s) (void)pauses.look(now += 300ms);
    CHECK(pauses.limit_after(kStart + 1s) < kStart + 10s);
    now += 60s;
    (void)pauses.look(now);  // later, one counts again
    CHECK(pauses.limit_after(kStart + 1s) == now);
}
