// NodeFailure: when a rank has published that it gives up, which ranks learn of it, and that data read from it does not
// count.

#include <atomic>
#include <future>
#include <string>
#include <thread>

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/support/node_collective.hpp"
#include "tests/unit/worker_lib/support/node_ranks.hpp"

using namespace ddp;
using namespace ddp::testing;
using detail::Operation;

namespace {

const detail::Failure kGone{
    .kind = detail::FailureKind::kPeerLost, .code = ErrorCode::PeerLost, .cause = "rank 7 is gone"};
const detail::Failure kDestroyed{.code = ErrorCode::Aborted, .cause = "destroyed", .names_group = true};

}  // namespace

TEST_CASE(
    "a rank has published that it gives up when its work fails, even while another thread is about to publish that",
    "[native][unit]") {
    int silent = 0;
    for (int round = 0; round < 200; ++round) {
        Ranks ranks(6);
        std::atomic<bool> begun{false};
        auto other = std::async(std::launch::async, [&] {
            begun = true;
            ranks[5].failure.poison(kEnough);
        });
        while (!begun) std::this_thread::yield();
        ranks[5].failure.poison(kEnough);
        if (ranks.control(5).poisoned_by.load() == 0) ++silent;
        other.get();
    }
    CHECK(silent == 0);
}

TEST_CASE("a rank propagates a failure of another, which may have died before it had reached all", "[native][unit]") {
    Ranks ranks(3);
    ranks[2].failure.stop(kEnough);         // has noted it, and marked
    ranks.control(1).poisoned_by.store(3);  // one other rank when it died
    ranks[1].failure.propagate(0);
    for (const int rank : {0, 1}) {
        const Error heard = failure_of([&] { ranks[rank].failure.check(operation(1)); });
        CHECK_THAT(heard.what(),
                   Catch::Contains(" cannot finish #1 barrier: ") && Catch::EndsWith(" reported: enough"));
    }
    CHECK(ranks.control(0).poisoned_by.load() == 3);
}

TEST_CASE("a failure leaves operations alone that its finder had completed, and a second failure may end those too",
          "[native][unit]") {
    Ranks ranks(3);
    ranks[0].failure.poison(kEnough, 1);
    for (const int rank : {0, 1, 2}) {
        CHECK(failure_of([&] { ranks[rank].failure.check(operation(1)); }).what() == std::string(kNone.what()));
        CHECK_FALSE(ranks[rank].failure.any_gives_up(operation(1)));
        CHECK(ranks[rank].failure.any_gives_up(operation(2)));
        CHECK(failure_of([&] { ranks[rank].failure.check(operation(2)); }).code() == ErrorCode::Aborted);
        CHECK(failure_of([&] { ranks[rank].failure.check_any(operation(1)); }).code() == ErrorCode::Aborted);
    }
    ranks[2].failure.poison(kGone, 0);
    ranks[1].failure.poison(kGone, 5);  // which invalidates no fewer operations
    for (const int rank : {0, 1, 2}) {
        CHECK(ranks[rank].failure.valid_through() == 0);
        CHECK(ranks[rank].failure.any_gives_up(operation(1)));
        const Error heard = failure_of([&] { ranks[rank].failure.check(operation(1)); });
        CHECK_THAT(heard.what(), Catch::EndsWith("enough"));
    }
}

TEST_CASE("a rank that waits in an operation which the others have completed is woken only by a failure of that one",
          "[native][unit]") {
    const bool fails = GENERATE(true, false);
    Ranks ranks(2);
    const Operation one = operation(1);
    ranks.open(one);
    ranks[0].meetings.join(one);
    ranks[1].meetings.join(one);
    auto waits =
        std::async(std::launch::async, [&] { return failure_of([&] { ranks[1].barrier.arrive_and_wait(one); }); });
    ranks[0].failure.poison(kEnough, 1);
    CHECK(waits.wait_for(std::chrono::milliseconds(150)) == std::future_status::timeout);
    if (fails) {
        ranks[0].failure.propagate(0);
    } else {
        ranks[0].barrier.arrive();
    }
    CHECK(waits.get().code() == (fails ? ErrorCode::Aborted : kNone.code()));
}

TEST_CASE("a rank that leaves in the middle of an operation stops waiting, even if the known failure leaves it alone",
          "[native][unit]") {
    Ranks ranks(2);
    const Operation two = operation(2);
    ranks.open(two);
    ranks[1].done(operation(1));
    ranks[0].failure.poison(kEnough, 2);
    CHECK(failure_of([&] { ranks[1].failure.check(two); }).what() == std::string(kNone.what()));
    ranks[1].failure.stop(kDestroyed);
    CHECK(failure_of([&] { ranks[1].failure.check(two); }).code() == ErrorCode::Aborted);
    CHECK(ranks.control(1).valid_through.load() == 1);
}

TEST_CASE("a rank whose work fails has published that it gives up, even while another thread leaves the group",
          "[native][unit]") {
    Ranks ranks(2);
    ranks[0].failure.poison(kEnough, 2);  // which leaves the current operation of rank 1 alone
    ranks[1].failure.stop(kDestroyed);
    ranks.control(1).valid_through.store(2);  // that thread has only noted it so far
    ranks[1].failure.propagate(1);            // the other thread fails
    CHECK(ranks[0].failure.any_gives_up(operation(2)));
    CHECK(ranks.control(0).valid_through.load() == 2);
}

TEST_CASE("the only rank of a node completes what all other ranks have completed, even after a failure",
          "[native][unit]") {
    Ranks ranks(1);
    const Operation one = operation(1);
    ranks.open(one);
    ranks[0].meetings.join(one);
    ranks[0].failure.poison(kEnough);
    CHECK(failure_of([&] { ranks[0].barrier.arrive_and_wait(one); }).what() == std::string(kNone.what()));
}

TEST_CASE("no rank passes a barrier with data read from a rank that had given up", "[native][unit]") {
    const bool leaves = GENERATE(true, false);
    Ranks ranks(2);
    const Operation one = operation(1);
    ranks.open(one);
    ranks[0].meetings.join(one);
    ranks[1].meetings.join(one);
    ranks[0].barrier.arrive();
    CHECK_FALSE(ranks[1].failure.any_gives_up(one));
    if (leaves) {
        ranks[0].failure.stop(kEnough);
        ranks[0].progress.leave(detail::Departure::kLeft);
    } else {
        ranks[0].failure.poison(kEnough);
    }
    CHECK(ranks[1].failure.any_gives_up(one));
    CHECK(failure_of([&] { ranks[1].barrier.arrive_and_wait(one); }).code() ==
          (leaves ? ErrorCode::PeerLost : ErrorCode::Aborted));
    CHECK_FALSE(ranks[0].barrier.try_wait());  // so no other rank passes it either
}

TEST_CASE("an all-reduce in the caller's thread stops if a rank gave up before its data was read", "[native][unit]") {
    const bool leaves = GENERATE(true, false);
    NodeCollective node(1, 1000);
    if (leaves) {
        node.ranks[1].failure.stop(kEnough);
        node.ranks[1].progress.leave(detail::Departure::kLeft);
    } else {
        node.ranks[1].failure.poison(kEnough);
    }
    const auto arrived = node.ranks.control(0).arrived.load();
    CHECK(detail::reduce_and_arrive(node.context, node.one, node.own) == detail::Step::kReduced);
    CHECK(node.ranks.control(0).arrived.load() == arrived);  // otherwise a peer would complete the operation
    const Error error = failure_of([&] { all_reduce(node.context, node.one, node.own, detail::Step::kReduced); });
    CHECK(error.code() == (leaves ? ErrorCode::PeerLost : ErrorCode::Aborted));
    CHECK(node.ranks.control(0).arrived.load() == arrived);
}

TEST_CASE("an all-reduce in the caller's thread completes if all ranks arrived before one gives up", "[native][unit]") {
    NodeCollective node(1, 1000);
    CHECK(detail::reduce_and_arrive(node.context, node.one, node.own) == detail::Step::kArrived);
    node.ranks[1].meetings.join(node.one);
    node.ranks[1].barrier.arrive();
    node.ranks[1].failure.poison(kEnough);
    CHECK(failure_of([&] { all_reduce(node.context, node.one, node.own, detail::Step::kArrived); }).what() ==
          std::string(kNone.what()));
    CHECK(node.values(0, 1000)[0] == 3);
}
