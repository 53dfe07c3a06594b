// NodeProgress: how pauses of the own rank, and neighbours, move the deadline of its operation.

#include "worker_lib/src/native/node/node_progress.hpp"

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/support/node_ranks.hpp"

using namespace ddp;
using namespace std::chrono_literals;

namespace {

const ddprun::TimePoint kCalled = ddprun::Clock::now();

detail::Operation called(std::uint64_t seq) {
    detail::Operation operation;
    operation.seq = seq;
    operation.timeout = 2s;
    operation.deadline = kCalled + operation.timeout;
    return operation;
}

}  // namespace

TEST_CASE("a pause moves the limits of the operation in which it was, and those of operations called before it",
          "[native][unit]") {
    testing::Ranks ranks(1);
    auto& progress = ranks[0].progress;
    progress.begin(called(1));
    (void)progress.look(kCalled);
    CHECK(progress.look(kCalled + 5s) > 0s);
    CHECK(progress.moved(progress.deadline()) == kCalled + 7s);
    progress.begin(called(2));
    CHECK(progress.moved(progress.deadline()) == kCalled + 7s);
    auto later = called(3);
    later.deadline += 5s;
    progress.begin(later);
    CHECK(progress.moved(progress.deadline()) == later.deadline);
}

TEST_CASE("an earlier deadline of a neighbour is taken over, unless it passed before the own call", "[native][unit]") {
    testing::Ranks ranks(1);
    auto& progress = ranks[0].progress;
    progress.begin(called(1));
    progress.lower_deadline(kCalled + 1s);
    CHECK(progress.deadline() == kCalled + 1s);
    progress.lower_deadline(kCalled - 1s);  // of one that has paused since it called
    CHECK(progress.deadline() == kCalled + 1s);
}
