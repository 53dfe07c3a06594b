// shrink(): which rank gets which error, and what works afterwards. Which rank decides: decision_test.cpp.

#include <chrono>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"
#include "tests/unit/worker_lib/support/world_errors.hpp"

using namespace ddp;
using namespace ddp::testing;
using std::chrono::milliseconds;

namespace {

using Clock = std::chrono::steady_clock;

/// Returns "sum/rank/size" of a group whose ranks add up their world ranks, from its arena.
std::string add_up(Context& context, ProcessGroup& group) {
    auto* value = static_cast<float*>(group.arena().allocate(50'000 * sizeof(float)));
    std::fill_n(value, 50'000, static_cast<float>(context.rank()));
    group.all_reduce({value, 50'000, DType::F32}, ReduceOp::Sum).wait();
    return std::to_string(static_cast<int>(value[49'999])) + "/" + std::to_string(group.rank()) + "/" +
           std::to_string(group.size());
}

void let_rank_0_exclude_1(Context& context) {
    const std::vector<int> exclude{1};
    if (context.rank() == 0) (void)context.world().shrink(exclude);
}

}  // namespace

TEST_CASE("the survivors of a failed group go on in a smaller one, in the same order", "[shrink][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{5}, {3, 2}, {2, 1, 2}}));
    const LocalWorld world{.ranks_per_node = shape};
    Gate through(5);  // or the abort would end the barrier of ranks that are still in it
    Gate left(5);
    Gate gate(5);
    const auto results = try_ranks(world, [&](Context& context) -> std::string {
        std::string result;
        context.world().barrier().wait();
        through.pass();
        if (context.rank() == 1) context.world().abort("no memory left");  // and comes no more
        float value = 1;
        try {
            for (;;) context.world().all_reduce(value, ReduceOp::Max).wait();
        } catch (const Error&) {
        }
        if (context.rank() != 1) {
            const std::vector<int> exclude{1, 1};
            const auto group = context.world().shrink(exclude);
            result = group->name() + " " + add_up(context, *group);
            left.pass();
        } else {
            left.pass();
        }
        gate.pass();
        return result;
    });
    const std::vector<std::string> expected{"(shrink1:1) of world 9/0/4", "", "(shrink1:1) of world 9/1/4",
                                            "(shrink1:1) of world 9/2/4", "(shrink1:1) of world 9/3/4"};
    for (std::size_t rank = 0; rank < results.size(); ++rank) {
        CHECK(results[rank].text() == "");
        CHECK(results[rank].value == expected[rank]);
    }
}

TEST_CASE("a healthy group can be shrunk, again and again, down to one rank", "[shrink][unit]") {
    const auto results = run_ranks({.ranks_per_node = {4}}, [](Context& context) {
        std::string result;
        std::unique_ptr<ProcessGroup> group = context.world().shrink({});
        while (group && group->size() > 1) {
            const std::vector<int> last{group->size() - 1};
            if (group->rank() == last[0]) return result;  // it destroys its old group, which disturbs no other rank
            group = group->shrink(last);
            result += add_up(context, *group) + " ";
        }
        return result;
    });
    CHECK(results == std::vector<std::string>{"3/0/3 1/0/2 0/0/1 ", "3/1/3 1/1/2 ", "3/2/3 ", ""});
}

TEST_CASE("wrong exclusions are refused at the call", "[shrink][unit]") {
    const auto results = run_ranks({.ranks_per_node = {2}}, [](Context& context) {
        const auto refusal = [&](std::vector<int> exclude) -> std::string {
            try {
                (void)context.world().shrink(exclude);
            } catch (const Error& error) {
                return (error.code() == ErrorCode::InvalidArgument ? "" : "wrong code: ") + std::string(error.what());
            }
            return "accepted";
        };
        return std::vector<std::string>{refusal({context.rank()}), refusal({0, 1}), refusal({2}), refusal({-1})};
    });
    CHECK_THAT(results[1][0], Catch::StartsWith("group 'world': rank 1 (host ") &&
                                  Catch::EndsWith("): shrink: rank 1 excludes itself. Only ranks that stay call it"));
    CHECK_THAT(results[0][1], Catch::Contains("all ranks are excluded"));
    CHECK_THAT(results[0][2], Catch::Contains("there is no rank 2 in a group of 2"));
    CHECK_THAT(results[0][3], Catch::Contains("there is no rank -1"));
}

TEST_CASE("survivors that disagree learn it at once, also about a rank that never calls", "[shrink][unit]") {
    Gate gate(4);
    const auto began = Clock::now();
    const auto errors = errors_of({.ranks_per_node = {4}}, behind(gate, [](Context& context) {
                                      if (context.rank() == 3) return;
                                      const std::vector<int> few{3};
                                      const std::vector<int> many{2, 3};
                                      (void)context.world().shrink(context.rank() == 0 ? many : few);
                                  }));
    CHECK(Clock::now() - began < std::chrono::seconds(10));
    for (const std::size_t rank : {1, 2}) {
        REQUIRE(errors[rank]);
        INFO(errors[rank]->what());
        CHECK(errors[rank]->code() == ErrorCode::Mismatch);
        CHECK(errors[rank]->culprits() == (rank == 1 ? std::vector<int>{2, 3} : std::vector<int>{3}));  // no speaker
        CHECK_THAT(errors[rank]->what(), Catch::Contains("excludes rank 3, " + named(0) + ") excludes ranks 2 and 3"));
    }
    REQUIRE(errors[0]);
    CHECK_THAT(errors[0]->culprits(), Catch::VectorContains(3));
}

TEST_CASE("a survivor that is lost, or does not arrive, is named", "[shrink][unit]") {
    const bool gone = GENERATE(true, false);
    Gate gate(gone ? 2 : 3);
    const auto began = Clock::now();
    const auto errors =
        errors_of({.ranks_per_node = {3}, .init_timeout = milliseconds(gone ? 30'000 : 700)}, [&](Context& context) {
            context.world().barrier().wait();
            if (context.rank() == 2 && gone) return;
            behind(gate, let_rank_0_exclude_1)(context);
        });
    CHECK(Clock::now() - began < std::chrono::seconds(10));
    REQUIRE(errors[0]);
    INFO(errors[0]->what());
    CHECK(errors[0]->code() == (gone ? ErrorCode::PeerLost : ErrorCode::Timeout));
    CHECK(errors[0]->culprits() == Culprits{2});
    CHECK_THAT(errors[0]->what(),
               Catch::Contains(gone ? "has left the group normally" : "for " + named(2) + ") to call shrink()"));
}

TEST_CASE("a survivor that goes after the group has failed is missed at once, also from another node",
          "[shrink][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{3}, {1, 1, 1}, {1, 2}}));
    Gate through(3);
    Gate failed(3);
    Gate gate(2);
    const auto began = Clock::now();
    const auto errors = errors_of({.ranks_per_node = shape}, [&](Context& context) {
        context.world().barrier().wait();
        through.pass();
        if (context.rank() == 1) context.world().abort("enough");
        try {
            context.world().barrier().wait();
        } catch (const Error&) {  // all see the failure before any rank leaves
        }
        failed.pass();
        // Long enough for the failure to be reported everywhere: the test is about what happens later.
        if (context.rank() == 2) return std::this_thread::sleep_for(milliseconds(200));
        behind(gate, let_rank_0_exclude_1)(context);
    });
    CHECK(Clock::now() - began < std::chrono::seconds(10));
    REQUIRE(errors[0]);
    INFO(errors[0]->what());
    CHECK(errors[0]->code() == ErrorCode::PeerLost);
    CHECK(errors[0]->culprits() == Culprits{2});
}

TEST_CASE("a rank that calls shrink again meets ranks that call it for the first time", "[shrink][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{4}, {2, 2}}));
    const LocalWorld world{.ranks_per_node = shape, .init_timeout = milliseconds(3'000)};
    const auto results = try_ranks(world, [](Context& context) {
        const std::vector<int> exclude{3};
        std::string result;
        context.world().barrier().wait();
        if (context.rank() == 0) {
            try {
                return "formed without the others: " + context.world().shrink(exclude)->name();
            } catch (const Error& error) {
                result = error.code() == ErrorCode::Timeout && error.culprits() == Culprits{1, 2} ? "late " : "wrong ";
            }
            context.store().set("failed", "yes");
        }
        (void)context.store().get("failed", milliseconds(20'000));
        if (context.rank() == 3) return result;
        const auto group = context.world().shrink(exclude);
        result += add_up(context, *group);
        group->barrier().wait();
        return result;
    });
    const std::vector<std::string> expected{"late 3/0/3", "3/1/3", "3/2/3", ""};
    for (std::size_t rank = 0; rank < results.size(); ++rank) {
        CHECK(results[rank].text() == "");
        CHECK(results[rank].value == expected[rank]);
    }
}

TEST_CASE("survivors that disagreed can agree the next time", "[shrink][unit]") {
    Gate disagreed(2);
    Gate gate(3);
    const auto results = try_ranks({.ranks_per_node = {3}}, [&](Context& context) {
        std::string result;
        if (context.rank() != 2) {
            const std::vector<int> both{2};
            try {
                (void)context.world().shrink(context.rank() == 0 ? both : std::vector<int>{});
            } catch (const Error& error) {
                result = error.code() == ErrorCode::Mismatch ? "no, " : "wrong, ";
            }
            disagreed.pass();
            const auto group = context.world().shrink(both);
            result += add_up(context, *group);
        }
        gate.pass();
        return result;
    });
    const std::vector<std::string> expected{"no, 1/0/2", "no, 1/1/2", ""};
    for (std::size_t rank = 0; rank < results.size(); ++rank) {
        CHECK(results[rank].text() == "");
        CHECK(results[rank].value == expected[rank]);
    }
}
