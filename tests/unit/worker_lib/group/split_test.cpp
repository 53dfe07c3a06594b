// Splits at which some ranks do not arrive, or late: which error each rank gets.

#include <chrono>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"
#include "tests/unit/worker_lib/support/world_errors.hpp"

using namespace ddp;
using namespace ddp::testing;
using std::chrono::milliseconds;

TEST_CASE("a rank that does not call split is named with its host", "[native][unit]") {
    const LocalWorld world{.ranks_per_node = {2, 1}, .init_timeout = std::chrono::seconds(2)};
    Gate gate(3);
    const auto errors = errors_of(world, behind(gate, [](Context& context) {
                                      if (context.rank() != 2) (void)context.world().split(0, 0, "all");
                                  }));
    for (const int rank : {0, 1}) {
        const auto& error = errors[static_cast<std::size_t>(rank)];
        REQUIRE(error);
        INFO(error->what());
        CHECK(error->culprits() == Culprits{2});
        CHECK_THAT(error->what(), Catch::Contains(named(rank) + ") waited 2 s for " + named(2) +
                                                  ") of 3 to call split 'all', too. All ranks"));
        CHECK_THAT(error->what(), !Catch::Contains("split/"));
    }
}

TEST_CASE("a rank that is too late for a split learns at once which ranks gave up, and the next split is another one",
          "[native][unit]") {
    const LocalWorld world{.ranks_per_node = {2, 1}, .init_timeout = milliseconds(1'000)};
    std::vector<std::string> said(3);
    Gate given_up(3);
    const auto errors = errors_of(world, [&](Context& context) {
        const int rank = context.rank();
        if (rank == 2) given_up.pass();
        try {
            (void)context.world().split(0, 0, "all");
        } catch (const Error& error) {
            said[static_cast<std::size_t>(rank)] = error.what();
        }
        if (rank != 2) given_up.pass();
        context.world().split(0, 0, "all again")->barrier().wait();
    });
    for (const auto& error : errors) {
        INFO((error ? error->what() : ""));
        CHECK_FALSE(error);
    }
    CAPTURE(said[2]);
    CHECK_THAT(
        said[2],
        Catch::StartsWith("group 'world': rank 2 (") && Catch::Contains(") calls split 'all', but rank ") &&
            Catch::Contains(") had given up by then, after 1 s of waiting for " + named(2) + "). Have all ranks"));
}
