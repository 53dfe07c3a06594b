// Failures between ranks: each rank gets an error in time that names the right rank.

#include <chrono>
#include <future>
#include <optional>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"
#include "tests/unit/worker_lib/support/world_errors.hpp"

using namespace ddp;
using namespace ddp::testing;
using std::chrono::milliseconds;

TEST_CASE("different operations are refused, naming both sides, on every rank", "[native][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{4}, {2, 2}, {1, 1, 1, 1}, {3, 1}}));
    const LocalWorld world{.ranks_per_node = shape};
    Gate gate(4);
    const auto errors =
        errors_of(world, behind(gate, [](Context& context) {
                      std::vector<float> values(10);
                      std::int64_t number = 0;
                      context.world().barrier().wait();
                      if (context.rank() == 3) {
                          context.world().broadcast(number, 0, {.label = "epoch"}).wait();
                      } else {
                          context.world().all_reduce(values, ReduceOp::Sum, {.label = "bucket 3"}).wait();
                      }
                  }));
    for (const auto& error : errors) {
        REQUIRE(error);
        INFO(error->what());
        CHECK(error->code() == ErrorCode::Mismatch);
        // A program that excludes culprits must not cast out a rank that is right: only a rank that sees all ranks
        // names one.
        CHECK(error->culprits() == (shape.size() == 1 ? std::vector<int>{3} : std::vector<int>{}));
        CHECK_THAT(error->what(), Catch::Contains("): #2 all_reduce sum f32[10] 'bucket 3'"));
        CHECK_THAT(error->what(),
                   Catch::Contains(named(3)) && Catch::Contains("): #2 broadcast i64[1] root 0 'epoch'"));
    }
}

TEST_CASE("a timeout names the ranks that did not arrive", "[native][unit]") {
    Gate gate(4);
    const auto errors = errors_of(
        {.ranks_per_node = {4}}, behind(gate, [](Context& context) {
            if (context.rank() == 1 || context.rank() == 2) return;
            float value = 1;
            context.world().all_reduce(value, ReduceOp::Sum, {.timeout = milliseconds(1000), .label = "loss"}).wait();
        }));
    for (const std::size_t rank : {0, 3}) {
        REQUIRE(errors[rank]);
        INFO(errors[rank]->what());
        CHECK(errors[rank]->code() == ErrorCode::Timeout);
        CHECK(errors[rank]->culprits() == Culprits{1, 2});
        CHECK(errors[rank]->group() == "world");
        CHECK(errors[rank]->operation() == "#1 all_reduce sum f32[1] 'loss'");
        CHECK(errors[rank]->seq() == 1);
        CHECK_THAT(errors[rank]->what(),
                   Catch::Contains("for " + named(1) + ") and " + named(2) + ") in #1 all_reduce sum f32[1] 'loss'"));
    }
    CHECK_FALSE(errors[1]);
}

TEST_CASE("a rank of another node that waits in vain for its neighbour names the neighbour", "[native][unit]") {
    // Ranks 0 and 1 on node 0, 2 and 3 on node 1; rank 3 does not come. Ranks 0 and 1 only talk to 2.
    Gate gate(4);
    const auto errors = errors_of({.ranks_per_node = {2, 2}}, behind(gate, [](Context& context) {
                                      if (context.rank() == 3) return;
                                      context.world().barrier({.timeout = milliseconds(1000)}).wait();
                                  }));
    for (const std::size_t rank : {0, 1, 2}) {
        REQUIRE(errors[rank]);
        INFO(errors[rank]->what());
        CHECK(errors[rank]->code() == ErrorCode::Timeout);
    }
    CHECK(errors[2]->culprits() == Culprits{3});
    CHECK(errors[0]->culprits() == Culprits{3});
    CHECK_THAT(errors[0]->what(), Catch::Contains(named(2)) && Catch::Contains("for " + named(3) + ") in #1 barrier"));
}

TEST_CASE("a timeout names all nodes from which nothing arrived", "[native][unit]") {
    Gate gate(3);
    const auto errors = errors_of({.ranks_per_node = {1, 1, 1}}, behind(gate, [](Context& context) {
                                      if (context.rank() != 1) return;
                                      context.world().barrier({.timeout = milliseconds(200)}).wait();
                                  }));
    REQUIRE(errors[1]);
    INFO(errors[1]->what());
    CHECK(errors[1]->code() == ErrorCode::Timeout);
    CHECK(errors[1]->culprits() == Culprits{0, 2});
    CHECK_THAT(errors[1]->what(), Catch::Contains("for rank 0 (host") && Catch::Contains(" and rank 2 (host"));
}

TEST_CASE("a rank with an early deadline does not report a neighbour that waits for another node", "[native][unit]") {
    // Rank 0 does not come; rank 1 waits for it, and rank 2 for rank 1.
    Gate gate(3);
    const auto began = std::chrono::steady_clock::now();
    const auto errors = errors_of({.ranks_per_node = {1, 2}}, behind(gate, [](Context& context) {
                                      if (context.rank() == 0) return;
                                      const auto timeout = milliseconds(context.rank() == 2 ? 300 : 20'000);
                                      context.world().barrier({.timeout = timeout}).wait();
                                  }));
    CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds(10));
    for (const std::size_t rank : {1, 2}) {
        REQUIRE(errors[rank]);
        INFO(errors[rank]->what());
        CHECK(errors[rank]->code() == ErrorCode::Timeout);
        CHECK(errors[rank]->culprits() == Culprits{0});
    }
}

TEST_CASE("after a failure every operation fails the same way", "[native][unit]") {
    Gate gate(2);
    const auto errors =
        errors_of({.ranks_per_node = {2}}, behind(gate, [](Context& context) {
                      if (context.rank() == 1) return;
                      ProcessGroup& world = context.world();
                      try {
                          world.barrier({.timeout = milliseconds(100)}).wait();
                      } catch (const Error&) {
                          world.barrier().wait();  // with a default deadline of 30 s: it must not take them
                      }
                  }));
    REQUIRE(errors[0]);
    INFO(errors[0]->what());
    CHECK(errors[0]->code() == ErrorCode::Timeout);
    CHECK(errors[0]->culprits() == Culprits{1});
    CHECK_THAT(errors[0]->what(),
               Catch::Contains("#2 barrier cannot run: the group has failed") && Catch::Contains("#1 barrier"));
    CHECK(errors[0]->operation() == "#2 barrier");  // the one that it has ended here
}

TEST_CASE("abort ends the work of all ranks, wherever it waits", "[native][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{3}, {2, 1}, {1, 1, 1}}));
    Gate gate(3);
    const auto begin = std::chrono::steady_clock::now();
    const auto errors = errors_of({.ranks_per_node = shape}, behind(gate, [](Context& context) {
                                      if (context.rank() == 1) {
                                          context.world().abort("loss is NaN");
                                          return;
                                      }
                                      std::vector<float> values(3'000'000, 1);
                                      context.world().all_reduce(values, ReduceOp::Sum).wait();
                                  }));
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(15));  // the deadline is after 30 s
    for (const std::size_t rank : {0, 2}) {
        REQUIRE(errors[rank]);
        INFO(errors[rank]->what());
        CHECK(errors[rank]->code() == ErrorCode::Aborted);
        CHECK(errors[rank]->culprits() == Culprits{1});
        CHECK_THAT(errors[rank]->what(),
                   Catch::Contains("aborted by rank 1 (host ") && Catch::Contains("): loss is NaN"));
    }
}

TEST_CASE("an abort in the midst of an operation arrives, also where the messages of that rank still wait to be sent",
          "[native][unit]") {
    const auto errors = errors_of({.ranks_per_node = {2, 2}}, [](Context& context) {
        auto group = context.world().split(0, context.rank(), "inner");
        std::vector<float> values(8'000'000, 1);
        group->barrier().wait();
        Work work = group->all_reduce(values, ReduceOp::Sum);
        if (context.rank() == 1) {
            group->abort("loss is NaN");
            group.reset();
        }
        work.wait();
    });
    for (const auto& error : errors) {
        REQUIRE(error);
        INFO(error->what());
        CHECK(error->code() == ErrorCode::Aborted);
    }
}

TEST_CASE("abort from another thread fails what its own rank has queued", "[native][unit]") {
    Gate gate(2);
    const auto errors = errors_of({.ranks_per_node = {2}}, behind(gate, [](Context& context) {
                                      if (context.rank() == 1) return;
                                      std::vector<Work> works;
                                      for (int i = 0; i < 10; ++i) works.push_back(context.world().barrier());
                                      const auto aborter =
                                          std::async(std::launch::async, [&] { context.world().abort("enough"); });
                                      for (auto work = works.rbegin(); work + 1 != works.rend(); ++work) {
                                          try {
                                              work->wait();
                                          } catch (const Error&) {
                                              continue;
                                          }
                                          return;  // it did not fail: neither does this rank, and the test sees that
                                      }
                                      works[0].wait();
                                  }));
    REQUIRE(errors[0]);
    CHECK(errors[0]->code() == ErrorCode::Aborted);
}

TEST_CASE("a rank that leaves is reported to the ranks that still need it", "[native][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{2}, {1, 1}}));
    const auto errors = errors_of({.ranks_per_node = shape}, [](Context& context) {
        context.world().barrier().wait();
        if (context.rank() == 0) context.world().barrier().wait();  // rank 1 is on its way out
    });
    REQUIRE(errors[0]);
    INFO(errors[0]->what());
    CHECK(errors[0]->code() == ErrorCode::PeerLost);
    CHECK(errors[0]->culprits() == Culprits{1});
    CHECK_THAT(errors[0]->what(), Catch::Contains("rank 1 (host") && Catch::Contains("#2 barrier"));
    CHECK_FALSE(errors[1]);
}

TEST_CASE("destroying a group fails what is in flight", "[native][unit]") {
    Gate gate(2);
    const auto errors = errors_of({.ranks_per_node = {2}}, behind(gate, [](Context& context) {
                                      auto group = context.world().split(0, 0, "short-lived");
                                      if (context.rank() == 1) return;
                                      Work work = group->barrier();
                                      group.reset();
                                      if (work.done()) work.wait();
                                  }));
    REQUIRE(errors[0]);
    CHECK(errors[0]->code() == ErrorCode::Aborted);
}

TEST_CASE("a rank that leaves with work in flight is missed as any other that leaves", "[native][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{2}, {1, 1}}));
    Gate left(2);
    Gate gate(2);
    const auto errors = errors_of({.ranks_per_node = shape}, behind(gate, [&left](Context& context) {
                                      auto group = context.world().split(0, 0, "short-lived");
                                      if (context.rank() == 1) {
                                          (void)group->barrier();
                                          group.reset();
                                      }
                                      left.pass();
                                      // The first one may pass: rank 1 may have come to it before it left.
                                      for (int i = 0; group && i < 2; ++i) group->barrier().wait();
                                  }));
    REQUIRE(errors[0]);
    INFO(errors[0]->what());
    CHECK(errors[0]->code() == ErrorCode::PeerLost);
    CHECK(errors[0]->culprits() == Culprits{1});
    // Inside a node the others need nothing more of a rank that has come to a barrier.
    CHECK_THAT(errors[0]->what(), Catch::Contains(shape.size() == 1 ? "has left the group normally after operation #1"
                                                                    : "has left the group with work in flight"));
    CHECK_FALSE(errors[1]);
}

TEST_CASE("ranks that never appear are named", "[native][unit]") {
    const auto store = detail::make_local_store();
    const LocalWorld world{.ranks_per_node = {4}, .init_timeout = milliseconds(1500)};
    std::vector<std::future<std::optional<Error>>> threads;
    for (const int rank : {0, 2}) {
        threads.push_back(std::async(std::launch::async, [&world, store, rank]() -> std::optional<Error> {
            try {
                Context(world.environment(rank), store, world.options());
            } catch (const Error& error) {
                return error;
            }
            return std::nullopt;
        }));
    }
    for (auto& thread : threads) {
        const auto error = thread.get();
        REQUIRE(error);
        INFO(error->what());
        CHECK(error->code() == ErrorCode::Timeout);
        CHECK(error->culprits() == Culprits{1, 3});
        CHECK_THAT(error->what(), Catch::Contains("ranks 1 and 3 of 4"));
    }
}
