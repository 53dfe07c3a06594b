// shrink() and monitored_barrier(): who is told what, and what works afterwards.

#include <chrono>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/local_world.hpp"
#include "tests/unit/worker_lib/world_errors.hpp"

using namespace ddp;
using namespace ddp::testing;
using std::chrono::milliseconds;

namespace {

using Clock = std::chrono::steady_clock;

/// "sum/rank/size" of a group whose ranks add up their world ranks, from its arena.
std::string add_up(Context& context, ProcessGroup& group) {
    auto* value = static_cast<float*>(group.arena().allocate(50'000 * sizeof(float)));
    std::fill_n(value, 50'000, static_cast<float>(context.rank()));
    group.all_reduce({value, 50'000, DType::f32}, ReduceOp::Sum).wait();
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
    Gate left(5);
    Gate gate(5);
    const auto results = try_ranks(world, [&](Context& context) -> std::string {
        std::string result;
        context.world().barrier().wait();
        if (context.rank() == 1) context.world().abort("no memory left");  // and comes no more
        float value = 1;
        try {
            for (;;) context.world().all_reduce(buffer(value), ReduceOp::Max).wait();
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
    const std::vector<std::string> expected{"world/shrink1:1 9/0/4", "", "world/shrink1:1 9/1/4",
                                            "world/shrink1:1 9/2/4", "world/shrink1:1 9/3/4"};
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
            if (group->rank() == last[0]) return result;  // its old group goes, which disturbs nobody
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
    CHECK(results[1][0] == "shrink of group 'world': rank 1 excludes itself. Only those who stay call it");
    CHECK_THAT(results[0][1], Catch::Contains("all ranks are excluded"));
    CHECK_THAT(results[0][2], Catch::Contains("there is no rank 2 in a group of 2"));
    CHECK_THAT(results[0][3], Catch::Contains("there is no rank -1"));
}

TEST_CASE("survivors that disagree are told so at once, also about somebody who never comes", "[shrink][unit]") {
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
        CHECK(errors[rank]->culprits().empty());
        CHECK_THAT(errors[rank]->what(), Catch::Contains("excludes rank 3, " + named(0) + ") excludes ranks 2 and 3"));
    }
    REQUIRE(errors[0]);
    CHECK(errors[0]->culprits().empty());
}

TEST_CASE("a survivor that is gone, or does not come, is named", "[shrink][unit]") {
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
               Catch::Contains(gone ? "has left the group normally" : "for " + named(2) + ") to call it"));
}

TEST_CASE("a survivor that goes after the group has failed is missed at once, also from another node",
          "[shrink][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{3}, {1, 1, 1}, {1, 2}}));
    Gate failed(3);
    Gate gate(2);
    const auto began = Clock::now();
    const auto errors = errors_of({.ranks_per_node = shape}, [&](Context& context) {
        context.world().barrier().wait();
        if (context.rank() == 1) context.world().abort("enough");
        try {
            context.world().barrier().wait();
        } catch (const Error&) {  // all see the failure before anybody goes
        }
        failed.pass();
        // Long enough for the news of the failure to be told everywhere: what comes later is what is tested.
        if (context.rank() == 2) return std::this_thread::sleep_for(milliseconds(200));
        behind(gate, let_rank_0_exclude_1)(context);
    });
    CHECK(Clock::now() - began < std::chrono::seconds(10));
    REQUIRE(errors[0]);
    INFO(errors[0]->what());
    CHECK(errors[0]->code() == ErrorCode::PeerLost);
    CHECK(errors[0]->culprits() == Culprits{2});
}

TEST_CASE("who calls shrink again meets those who call it for the first time", "[shrink][unit]") {
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

TEST_CASE("of two sides that exclude each other only one goes on", "[shrink][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{4}, {2, 2}, {1, 1, 1, 1}}));
    // Who excludes the rest: rank 2, which comes first, or at the same time; or ranks 2 and 3.
    const int what = GENERATE(0, 1, 2);
    Gate begun(4);
    Gate gate(4);
    const auto sizes = try_ranks({.ranks_per_node = shape}, [&](Context& context) {
        const bool odd = context.rank() == 2 || (what == 2 && context.rank() == 3);
        const std::vector<int> rest = what == 2 ? std::vector<int>{0, 1} : std::vector<int>{0, 1, 3};
        const std::vector<int> them = what == 2 ? std::vector<int>{2, 3} : std::vector<int>{2};
        int size = 0;
        std::unique_ptr<ProcessGroup> group;
        behind(gate, [&](Context& mine) {
            if (what != 0) begun.pass();
            if (what == 0 && !odd) (void)mine.store().get("gone on", std::chrono::seconds(20));
            group = mine.world().shrink(odd ? rest : them);
            if (what == 0 && odd) mine.store().set("gone on", "yes");
            size = group->size();
        })(context);
        return size;
    });
    for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
        const bool odd = rank == 2 || (what == 2 && rank == 3);
        INFO(sizes[rank].text());
        if (odd == (what == 0)) {  // the larger side, unless it comes too late
            CHECK(sizes[rank].value == (what == 0 ? 1 : what == 1 ? 3 : 2));
            continue;
        }
        REQUIRE(sizes[rank].ddp_error());
        CHECK(sizes[rank].ddp_error()->code() == ErrorCode::Mismatch);
        const std::string words = what == 0   ? named(2) + ") has gone on already"
                                  : what == 1 ? "ranks 0, 1 and 3 exclude " + named(2) + "), which excludes ranks 0, 1"
                                              : "ranks 0 and 1 exclude rank ";
        CHECK_THAT(sizes[rank].text(), Catch::Contains(words));
    }
}

TEST_CASE("a monitored barrier that all reach lets all pass, again and again", "[barrier][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{1}, {4}, {2, 2}, {1, 1, 1}}));
    const auto results = run_ranks({.ranks_per_node = shape}, [](Context& context) {
        for (int i = 0; i < 5; ++i) context.world().monitored_barrier(milliseconds(10'000), "step");
        return true;
    });
    CHECK(std::count(results.begin(), results.end(), true) == static_cast<std::ptrdiff_t>(results.size()));
}

TEST_CASE("all who came to a monitored barrier name all who did not, and can go on", "[barrier][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{5}, {3, 2}, {1, 2, 2}}));
    const LocalWorld world{.ranks_per_node = shape};
    Gate came(3);
    const auto errors = try_ranks(world, [&](Context& context) -> std::vector<std::string> {
        ProcessGroup& group = context.world();
        group.barrier().wait();
        const bool late = context.rank() == 2 || context.rank() == 4;
        if (!late) came.pass();  // so that none of the others is missing, too
        if (late) {
            for (const int rank : {0, 1, 3})
                (void)context.store().get("failed/" + std::to_string(rank), milliseconds(20'000));
        }
        std::vector<std::string> texts;
        try {
            // The first that gives up speaks for all.
            group.monitored_barrier(milliseconds(context.rank() == 1 ? 1'500 : 20'000), "checkpoint");
        } catch (const Error& error) {
            texts.emplace_back(error.what());
            texts.emplace_back(error.culprits() == Culprits{2, 4} && error.code() == ErrorCode::Timeout ? "both"
                                                                                                        : "no");
        }
        context.store().set("failed/" + std::to_string(context.rank()), "yes");
        group.monitored_barrier(milliseconds(20'000), "second");
        float value = 1;
        group.all_reduce(buffer(value), ReduceOp::Sum).wait();
        texts.push_back(std::to_string(static_cast<int>(value)));
        return texts;
    });
    for (std::size_t rank = 0; rank < errors.size(); ++rank) {
        REQUIRE(errors[rank].value);
        const auto& texts = *errors[rank].value;
        REQUIRE(texts.size() == 3);
        INFO(texts[0]);
        CHECK_THAT(texts[0], Catch::Contains("group 'world': monitored_barrier 'checkpoint': 2 of 5 ranks did "
                                             "not come within ") &&
                                 Catch::Contains(" s: rank 2 (host ") && Catch::Contains("; rank 4 (host ") &&
                                 Catch::Contains("The group stays usable"));
        CHECK(texts[1] == "both");
        CHECK(texts[2] == "5");
        const bool late = rank == 2 || rank == 4;
        CHECK((texts[0].find("it came after the others had given up") != std::string::npos) == late);
        // Rank 2 always has a neighbour that came; rank 4 only where the shape says so.
        if (shape.size() != 3) CHECK_THAT(texts[0], Catch::Contains("rank 2 (host") && Catch::Contains("is alive"));
    }
}

TEST_CASE("a monitored barrier does not wait for who is gone", "[barrier][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{3}, {1, 2}, {1, 1, 1}}));
    const auto began = Clock::now();
    Gate gate(2);
    const auto errors = errors_of({.ranks_per_node = shape}, [&](Context& context) {
        context.world().barrier().wait();
        if (context.rank() == 2) return;
        behind(gate, [](Context& mine) { mine.world().monitored_barrier(milliseconds(30'000)); })(context);
    });
    CHECK(Clock::now() - began < std::chrono::seconds(10));
    for (const std::size_t rank : {0, 1}) {
        REQUIRE(errors[rank]);
        INFO(errors[rank]->what());
        CHECK(errors[rank]->code() == ErrorCode::PeerLost);
        CHECK(errors[rank]->culprits() == Culprits{2});
        CHECK_THAT(errors[rank]->what(), Catch::Contains("rank 2 (host") &&
                                             Catch::Contains("has left the group normally after operation #1") &&
                                             Catch::Contains("shrink() it"));
    }
}

TEST_CASE("a monitored barrier is passed even if the last to come dies before it says so", "[barrier][unit]") {
    const auto errors = errors_of({.ranks_per_node = {3}}, [](Context& context) {
        context.world().barrier().wait();
        if (context.rank() != 2) return context.world().monitored_barrier(milliseconds(1'000));
        // As far as rank 2 comes: its card and its count, but not the word that all have come.
        Store& store = context.store();
        const std::string prefix = "ddp/0/world/monitored/1/";
        for (const char* const other : {"here/0", "here/1"}) (void)store.get(prefix + other, milliseconds(20'000));
        while (store.add(prefix + "count", 0) < 2) std::this_thread::yield();
        store.set(prefix + "here/2", "rank 2");
        store.add(prefix + "count", 1);
    });
    for (const auto& error : errors) CHECK_FALSE(error);
}

TEST_CASE("a negative limit of a monitored barrier is refused", "[barrier][unit]") {
    run_ranks({.ranks_per_node = {1}}, [](Context& context) {
        try {
            context.world().monitored_barrier(milliseconds(-1));
        } catch (const Error& error) {
            if (error.code() == ErrorCode::InvalidArgument) return;
        }
        throw std::runtime_error("accepted");
    });
}
