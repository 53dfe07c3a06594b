// NodeProgress: how pauses of the own rank, and neighbours, move the deadline of its operation.

#include "worker_lib/src/native/node/node_progress.hpp"

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/support/node_ranks.hpp"

using namespace ddp;
using namespace std::chrono_literals;

TEST_CASE("a pause moves the limits of the operation in which it was, and those of operations called before it",
          "[native][unit]") {
    testing::Ranks ranks(1);
    auto& progress = ranks[0].progress;
    const auto one = testing::operation(1, 2s);
    const auto called = one.deadline - one.timeout;
    progress.begin(one);
    (void)progress.look(called);
    CHECK(progress.look(called + 5s) > 0s);
    CHECK(progress.limit() == called + 7s);
    auto next = one;
    next.seq = 2;
    progress.begin(next);
    CHECK(progress.limit() == called + 7s);
    auto later = one;
    later.seq = 3;
    later.deadline += 5s;
    progress.begin(later);
    CHECK(progress.limit() == later.deadline);
}

TEST_CASE("an earlier deadline of a neighbour is taken over, unless it passed before the own call", "[native][unit]") {
    testing::Ranks ranks(1);
    auto& progress = ranks[0].progress;
    const auto one = testing::operation(1, 2s);
    progress.begin(one);
    progress.lower_deadline(one.deadline - 1s);
    CHECK(progress.deadline() == one.deadline - 1s);
    progress.lower_deadline(one.deadline - 3s);  // of one that has paused since it called
    CHECK(progress.deadline() == one.deadline - 1s);
}
