// Ranks that leave, fail or abort while the ranks that could report it to other nodes are busy elsewhere: every rank
// that waits in vain gets an error at once that names the rank. In the world {1, 3} only ranks 0 and 1 talk to the
// other node, and the groups of idle ranks stay alive until the others are done.

#include <chrono>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"
#include "tests/unit/worker_lib/support/world_errors.hpp"

using namespace ddp;
using namespace ddp::testing;

namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kPrompt = std::chrono::seconds(8);  // on a machine that stands still now and then; the deadline is 30 s

void reduce_one(Context& context) {
    float value = 1;
    context.world().all_reduce(value, ReduceOp::Sum, {.label = "loss"}).wait();
}

/// An operation that only one rank waits for.
struct Lonely {
    std::vector<std::optional<Error>> errors;
    Clock::duration waited{};
};

/// `failing` runs `fail`, `waiting` reduces, and the others do nothing until both are done.
template <typename Fail>
Lonely while_others_idle(const std::vector<int>& shape, int failing, int waiting, Fail fail) {
    const LocalWorld world{.ranks_per_node = shape};
    Gate gate(world.size());
    Lonely result;
    result.errors = errors_of(world, behind(gate, [&](Context& context) {
                                  context.world().barrier().wait();
                                  if (context.rank() == failing) fail(context);
                                  if (context.rank() != waiting) return;
                                  const auto began = Clock::now();
                                  try {
                                      reduce_one(context);
                                  } catch (...) {
                                      result.waited = Clock::now() - began;
                                      throw;
                                  }
                              }));
    return result;
}

}  // namespace

TEST_CASE("an abort reaches ranks that wait on another node, though both nodes' leaders are idle", "[native][unit]") {
    struct Case {
        std::vector<int> shape;
        int failing;
        int waiting;
    };
    const auto [shape, failing, waiting] =
        GENERATE(Case{{1, 3}, 3, 0}, Case{{1, 3}, 0, 2}, Case{{2, 3}, 4, 1}, Case{{2, 3, 2}, 4, 6});
    const auto [errors, waited] =
        while_others_idle(shape, failing, waiting, [](Context& context) { context.world().abort("loss is NaN"); });
    const auto& error = errors[static_cast<std::size_t>(waiting)];
    REQUIRE(error);
    INFO(error->what());
    CHECK(error->code() == ErrorCode::Aborted);
    CHECK_THAT(error->what(), Catch::Contains("aborted by rank " + std::to_string(failing) + " (host ") &&
                                  Catch::Contains("): loss is NaN"));
    CHECK(waited < kPrompt);
}

TEST_CASE("a rank whose program throws is named on the other node at once", "[native][unit]") {
    const LocalWorld world{.ranks_per_node = {1, 3}};
    Gate others(3);
    const auto began = Clock::now();
    const auto errors = errors_of(world, [&](Context& context) {
        context.world().barrier().wait();
        if (context.rank() == 3) throw Error(ErrorCode::Io, "no such file");  // and its context goes
        behind(others, [](Context& mine) {
            if (mine.rank() == 0) reduce_one(mine);
        })(context);
    });
    CHECK(Clock::now() - began < kPrompt);
    REQUIRE(errors[0]);
    INFO(errors[0]->what());
    CHECK(errors[0]->code() == ErrorCode::PeerLost);
    CHECK(errors[0]->culprits() == Culprits{3});
    CHECK_THAT(errors[0]->what(),
               Catch::Contains("rank 3 (host") &&
                   Catch::Contains("has left the group because of an exception after operation #1") &&
                   Catch::Contains("rank 0 cannot finish #2 all_reduce sum f32[1] 'loss'"));
}

TEST_CASE("a rank that fails and ends before its leader looks is reported with its failure", "[native][unit]") {
    const LocalWorld world{.ranks_per_node = {2, 2}};
    Gate through(4);  // or the abort would end the barrier of ranks that are still in it
    Gate others(3);
    const auto errors = errors_of(world, [&](Context& context) {
        context.world().barrier().wait();
        through.pass();
        if (context.rank() == 3) return context.world().abort("loss is NaN");  // and its context goes
        behind(others, [](Context& mine) {
            if (mine.rank() == 0) reduce_one(mine);
        })(context);
    });
    REQUIRE(errors[0]);
    INFO(errors[0]->what());
    CHECK(errors[0]->code() == ErrorCode::Aborted);
    CHECK(errors[0]->culprits() == Culprits{3});
    CHECK_THAT(errors[0]->what(), Catch::Contains("aborted by rank 3 (host ") && Catch::Contains("): loss is NaN"));
}

TEST_CASE("a rank that runs fewer operations than the others is named, with both numbers", "[native][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{2}, {1, 1}, {2, 2}, {1, 3}, {3, 1}}));
    const LocalWorld world{.ranks_per_node = shape};
    const int leaver = GENERATE_COPY(0, world.size() - 1);
    const auto began = Clock::now();
    const auto errors = errors_of(world, [&](Context& context) {
        for (int i = 0; i < 2; ++i) context.world().barrier().wait();
        if (context.rank() != leaver) reduce_one(context);
    });
    CHECK(Clock::now() - began < kPrompt);
    for (int rank = 0; rank < world.size(); ++rank) {
        const auto& error = errors[static_cast<std::size_t>(rank)];
        CAPTURE(rank, leaver, world.size());
        CHECK(error.has_value() == (rank != leaver));
        if (!error) continue;
        INFO(error->what());
        CHECK(error->code() == ErrorCode::PeerLost);
        CHECK(error->culprits() == Culprits{leaver});
        const auto name = "rank " + std::to_string(leaver) + " (host";
        CHECK_THAT(error->what(), Catch::Contains(name) &&
                                      Catch::Contains("has left the group normally after operation #2") &&
                                      Catch::Contains("#3 all_reduce sum f32[1] 'loss'"));
    }
}

TEST_CASE("a rank that left with work in flight is reported as not having waited for it", "[native][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{2}, {1, 1}, {2, 1}}));
    const bool waits = GENERATE(true, false);
    CAPTURE(shape.size(), waits);
    const LocalWorld world{.ranks_per_node = shape};
    Gate left(world.size());
    Gate over(world.size());  // no other rank leaves before
    const auto errors = errors_of(world, [&](Context& context) {
        auto group = context.world().split(0, context.rank(), "short");
        std::vector<float> values(100'000, 1);
        const auto reduce = [&] { return group->all_reduce(values, ReduceOp::Sum); };
        reduce().wait();
        if (context.rank() == 1) {
            if (!waits) (void)reduce();
            group.reset();
        }
        left.pass();
        std::exception_ptr error;
        try {
            if (context.rank() == 0) reduce().wait();
        } catch (...) {
            error = std::current_exception();
        }
        over.pass();
        if (error) std::rethrow_exception(error);
    });
    REQUIRE(errors[0]);
    INFO(errors[0]->what());
    CHECK(errors[0]->code() == ErrorCode::PeerLost);
    CHECK(errors[0]->culprits() == Culprits{1});
    CHECK_THAT(errors[0]->what(), Catch::Contains("rank 1 (host"));
    if (waits) {
        CHECK_THAT(errors[0]->what(), Catch::Contains("has left the group normally after operation #1. Do all ranks"));
    } else {
        CHECK_THAT(errors[0]->what(),
                   Catch::Contains("has left the group after operation #1 with work in flight: it did not wait for "
                                   "its last operations. Each rank must wait for its Work"));
    }
}

TEST_CASE("a rank that waits for one that left gets an error even while its neighbours are idle", "[native][unit]") {
    const LocalWorld world{.ranks_per_node = {1, 3}};
    Gate others(3);
    const auto began = Clock::now();
    const auto errors = errors_of(world, [&](Context& context) {
        context.world().barrier().wait();
        if (context.rank() == 2) return;
        behind(others, [](Context& mine) {
            if (mine.rank() == 0) reduce_one(mine);
        })(context);
    });
    CHECK(Clock::now() - began < kPrompt);
    REQUIRE(errors[0]);
    CHECK(errors[0]->culprits() == Culprits{2});
    CHECK_THAT(errors[0]->what(), Catch::Contains("has left the group normally after operation #1"));
}

TEST_CASE("ranks that leave one after another, having done the same, disturb no other", "[native][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{3}, {1, 1}, {2, 2}, {1, 3}, {3, 1, 2}}));
    for (int round = 0; round < 10; ++round) {
        const auto errors = errors_of({.ranks_per_node = shape}, [](Context& context) {
            std::vector<float> values(100'000, 1);
            for (int i = 0; i < 3; ++i) {
                context.world().all_reduce(values, ReduceOp::Sum).wait();
                context.world().broadcast(values, 0).wait();
            }
        });
        for (const auto& error : errors) {
            INFO((error ? error->what() : ""));
            CHECK_FALSE(error);
        }
    }
}
