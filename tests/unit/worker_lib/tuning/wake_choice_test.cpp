#include "worker_lib/src/tuning/wake_choice.hpp"

#include "tests/catch.hpp"

using ddp::detail::WakeChoice;

namespace {

/// Operations queued one after the other, each with nothing before it, until one is left to its caller.
int woken_in_a_row(WakeChoice& choice) {
    int count = 0;
    while (count < 10'000 && choice.wake(false)) ++count;
    return count;
}

}  // namespace

TEST_CASE("a caller that waits at once is left to run its operations", "[native][unit]") {
    WakeChoice choice;
    for (int i = 0; i < 100; ++i) {
        CHECK_FALSE(choice.wake(false));
        choice.claimed();
    }
}

TEST_CASE("a second operation before the first is taken wakes the progress thread, and so do the next ones",
          "[native][unit]") {
    WakeChoice choice;
    CHECK_FALSE(choice.wake(false));
    CHECK(choice.wake(true));
    CHECK(woken_in_a_row(choice) > 10);
}

TEST_CASE("a caller that leaves operations lying is trusted less each time, and again after some that it took",
          "[native][unit]") {
    WakeChoice choice;
    choice.unclaimed();
    const int first = woken_in_a_row(choice);
    choice.unclaimed();
    const int second = woken_in_a_row(choice);
    CHECK(second > first);
    for (int i = 0; i < 20; ++i) choice.unclaimed();
    CHECK(woken_in_a_row(choice) < 1000);  // a caller that has changed its ways is not punished for ever
    for (int i = 0; i < 20; ++i) choice.claimed();
    choice.unclaimed();
    CHECK(woken_in_a_row(choice) == first);
}

TEST_CASE("an operation that no thread takes is seen at the second look, and looking ends when none is queued any more",
          "[native][unit]") {
    using Look = WakeChoice::Look;
    WakeChoice choice;
    CHECK_FALSE(choice.wake(false));
    CHECK(choice.look(7) == Look::kGoOn);
    CHECK(choice.look(8) == Look::kGoOn);  // the next one already
    CHECK(choice.look(8) == Look::kWake);
    CHECK(choice.wake(false));
    int looks = 1;
    while (looks < 10'000 && choice.look(0) == Look::kGoOn) ++looks;
    CHECK(looks > 100);
    CHECK(looks < 1000);
    choice.claimed();
}
