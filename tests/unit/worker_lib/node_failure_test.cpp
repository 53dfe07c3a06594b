// A rank that gives up: when it has said so, whom it tells, and that nobody believes what he read of it.

#include <atomic>
#include <future>
#include <string>
#include <thread>

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/node_ranks.hpp"
#include "tests/unit/worker_lib/node_team.hpp"

using namespace ddp;
using namespace ddp::testing;
using detail::Operation;

TEST_CASE("a rank has said that it gives up when its work fails, also while another of its threads is about to say so",
          "[native][unit]") {
    int silent = 0;
    for (int round = 0; round < 200; ++round) {
        Ranks ranks(6);
        std::atomic<bool> begun{false};
        auto other = std::async(std::launch::async, [&] {
            begun = true;
            ranks[5].poison(kEnough);
        });
        while (!begun) std::this_thread::yield();
        ranks[5].poison(kEnough);
        if (ranks.control(5).poisoned_by.load() == 0) ++silent;
        other.get();
    }
    CHECK(silent == 0);
}

TEST_CASE("who heard of a failure passes it on, for who found it may have died before it had told all",
          "[native][unit]") {
    Ranks ranks(3);
    ranks[2].stop(kEnough);                 // has noted it, and told
    ranks.control(1).poisoned_by.store(3);  // one other, when it died
    ranks[1].pass_on(0);
    for (const int rank : {0, 1}) {
        const Error heard = failure_of([&] { ranks[rank].check_poison(operation(1)); });
        CHECK_THAT(heard.what(),
                   Catch::Contains(" cannot finish #1 barrier: ") && Catch::EndsWith(" reported: enough"));
    }
    CHECK(ranks.control(0).poisoned_by.load() == 3);
}

TEST_CASE("a failure leaves alone what its finder had done, and a second one may spoil that, too", "[native][unit]") {
    Ranks ranks(3);
    ranks[0].poison(kEnough, 1);
    for (const int rank : {0, 1, 2}) {
        CHECK(failure_of([&] { ranks[rank].check_poison(operation(1)); }).what() == std::string(kNone.what()));
        CHECK_FALSE(ranks[rank].any_gives_up(operation(1)));
        CHECK(ranks[rank].any_gives_up(operation(2)));
        CHECK(failure_of([&] { ranks[rank].check_poison(operation(2)); }).code() == ErrorCode::Aborted);
        CHECK(failure_of([&] { ranks[rank].check_failure(operation(1)); }).code() == ErrorCode::Aborted);
    }
    ranks[2].relay(Error(ErrorCode::PeerLost, "rank 7 is gone"), 0);
    ranks[1].relay(Error(ErrorCode::PeerLost, "rank 7 is gone"), 5);  // which spoils no less
    for (const int rank : {0, 1, 2}) {
        CHECK(ranks[rank].spoiled_after() == 0);
        CHECK(ranks[rank].any_gives_up(operation(1)));
        const Error heard = failure_of([&] { ranks[rank].check_poison(operation(1)); });
        CHECK_THAT(heard.what(), Catch::EndsWith("enough"));
    }
}

TEST_CASE("who waits in an operation that the others have done is woken only by what spoils that one",
          "[native][unit]") {
    const bool fails = GENERATE(true, false);
    Ranks ranks(2);
    const Operation one = operation(1);
    ranks.open(one);
    ranks[0].join(one);
    ranks[1].join(one);
    auto waits = std::async(std::launch::async, [&] { return failure_of([&] { ranks[1].barrier(one); }); });
    ranks[0].poison(kEnough, 1);
    CHECK(waits.wait_for(std::chrono::milliseconds(150)) == std::future_status::timeout);
    if (fails) {
        ranks[0].pass_on(0);
    } else {
        ranks[0].arrive();
    }
    CHECK(waits.get().code() == (fails ? ErrorCode::Aborted : kNone.code()));
}

TEST_CASE("who leaves in the midst of an operation waits no longer, though the failure it knows of leaves that alone",
          "[native][unit]") {
    Ranks ranks(2);
    const Operation two = operation(2);
    ranks.open(two);
    ranks[1].done(operation(1));
    ranks[0].relay(kEnough, 2);
    CHECK(failure_of([&] { ranks[1].check_poison(two); }).what() == std::string(kNone.what()));
    ranks[1].stop(Error(ErrorCode::Aborted, "destroyed"));
    CHECK(failure_of([&] { ranks[1].check_poison(two); }).code() == ErrorCode::Aborted);
    CHECK(ranks.control(1).spoiled_after.load() == 1);
}

TEST_CASE("a rank whose work fails has said that it gives that up, also while another thread is leaving the group",
          "[native][unit]") {
    Ranks ranks(2);
    ranks[0].poison(kEnough, 2);  // which leaves alone what rank 1 is at
    ranks[1].stop(Error(ErrorCode::Aborted, "destroyed"));
    ranks.control(1).spoiled_after.store(2);  // that thread has come as far as noting it
    ranks[1].pass_on(1);                      // the other fails
    CHECK(ranks[0].any_gives_up(operation(2)));
    CHECK(ranks.control(0).spoiled_after.load() == 2);
}

TEST_CASE("who is alone on its node ends well what all others have done, whatever they do then", "[native][unit]") {
    Ranks ranks(1);
    const Operation one = operation(1);
    ranks.open(one);
    ranks[0].join(one);
    ranks[0].relay(kEnough);
    CHECK(failure_of([&] { ranks[0].barrier(one); }).what() == std::string(kNone.what()));
}

TEST_CASE("nobody goes through a barrier with what he has read of a rank that had given up", "[native][unit]") {
    const bool leaves = GENERATE(true, false);
    Ranks ranks(2);
    const Operation one = operation(1);
    ranks.open(one);
    ranks[0].join(one);
    ranks[1].join(one);
    ranks[0].arrive();
    CHECK_FALSE(ranks[1].any_gives_up(one));
    if (leaves) {
        ranks[0].stop(kEnough);
        ranks[0].leave(detail::Departure::kLeft);
    } else {
        ranks[0].poison(kEnough);
    }
    CHECK(ranks[1].any_gives_up(one));
    CHECK(failure_of([&] { ranks[1].barrier(one); }).code() == (leaves ? ErrorCode::PeerLost : ErrorCode::Aborted));
    CHECK_FALSE(ranks[0].try_barrier());  // and so nobody else does
}

TEST_CASE("an all-reduce that its caller carries out goes no further when a rank has given up before it was read",
          "[native][unit]") {
    const bool leaves = GENERATE(true, false);
    NodeTeam node(1, 1000);
    if (leaves) {
        node.ranks[1].stop(kEnough);
        node.ranks[1].leave(detail::Departure::kLeft);
    } else {
        node.ranks[1].poison(kEnough);
    }
    const auto arrived = node.ranks.control(0).arrived.load();
    CHECK(detail::reduce_and_arrive(node.team, node.one, node.own) == detail::Step::kReduced);
    CHECK(node.ranks.control(0).arrived.load() == arrived);  // else a peer would take it for done, and end well
    const Error error = failure_of([&] { all_reduce(node.team, node.one, node.own, detail::Step::kReduced); });
    CHECK(error.code() == (leaves ? ErrorCode::PeerLost : ErrorCode::Aborted));
    CHECK(node.ranks.control(0).arrived.load() == arrived);
}

TEST_CASE("an all-reduce that its caller has carried out before a rank gives up ends well where all have arrived",
          "[native][unit]") {
    NodeTeam node(1, 1000);
    CHECK(detail::reduce_and_arrive(node.team, node.one, node.own) == detail::Step::kArrived);
    node.ranks[1].join(node.one);
    node.ranks[1].arrive();
    node.ranks[1].poison(kEnough);
    CHECK(failure_of([&] { all_reduce(node.team, node.one, node.own, detail::Step::kArrived); }).what() ==
          std::string(kNone.what()));
    CHECK(node.values(0, 1000)[0] == 3);
}
