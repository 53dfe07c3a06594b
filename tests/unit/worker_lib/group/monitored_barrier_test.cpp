// monitored_barrier(): which rank gets which error, and that the group works afterwards.

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <span>
#include <stdexcept>
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

constexpr int kMaxRounds = 50;

/// How far two ranks, threads of the test, are; without a store, whose answers would be too late.
struct Turns {
    std::atomic<int> opened{0};
    std::atomic<int> missed{0};
    std::atomic<bool> shown{false};  ///< rank 0 has been slow to notice

    static void say(std::atomic<int>& turn, int round) { turn = round; }
    static void await(const std::atomic<int>& turn, int round) {
        const auto latest = Clock::now() + std::chrono::seconds(20);
        while (turn < round) {
            if (Clock::now() > latest) throw std::runtime_error("the other rank does not come");
            std::this_thread::yield();
        }
    }
};

}  // namespace

TEST_CASE("a monitored barrier that all reach lets all pass, again and again", "[barrier][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{1}, {4}, {2, 2}, {1, 1, 1}}));
    const auto results = run_ranks({.ranks_per_node = shape}, [](Context& context) {
        for (int i = 0; i < 5; ++i) context.world().monitored_barrier(milliseconds(10'000), "step");
        return true;
    });
    CHECK(std::count(results.begin(), results.end(), true) == static_cast<std::ptrdiff_t>(results.size()));
}

TEST_CASE("all ranks that arrived at a monitored barrier name all that did not, and can go on", "[barrier][unit]") {
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
        group.all_reduce(value, ReduceOp::Sum).wait();
        texts.push_back(std::to_string(static_cast<int>(value)));
        return texts;
    });
    for (std::size_t rank = 0; rank < errors.size(); ++rank) {
        REQUIRE(errors[rank].value);
        const auto& texts = *errors[rank].value;
        REQUIRE(texts.size() == 3);
        INFO(texts[0]);
        CHECK_THAT(texts[0], Catch::Contains("group 'world': monitored_barrier 'checkpoint': 2 of 5 ranks did "
                                             "not arrive within ") &&
                                 Catch::Contains(" s: rank 2 (host ") && Catch::Contains("; rank 4 (host ") &&
                                 Catch::Contains("The group stays usable"));
        CHECK(texts[1] == "both");
        CHECK(texts[2] == "5");
        const bool late = rank == 2 || rank == 4;
        CHECK((texts[0].find("it arrived after the others had given up") != std::string::npos) == late);
        // Rank 2 always has a neighbour that came; rank 4 only where the shape says so.
        if (shape.size() != 3) CHECK_THAT(texts[0], Catch::Contains("rank 2 (host") && Catch::Contains("is alive"));
    }
}

TEST_CASE("a monitored barrier does not wait for lost ranks", "[barrier][unit]") {
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
                                             Catch::Contains("collectives? Without rank 2") &&
                                             Catch::Contains("call shrink()"));
    }
}

namespace {

/// Returns the error of a monitored barrier at which rank 1 is missing: both ranks call a sum, rank 1 contributes while
/// rank 0 is slow to notice, and does not wait for it; rank 0 does.
std::vector<std::string> miss_who_does_not_wait(Context& context, std::span<float> values, Turns& turns) {
    ProcessGroup& group = context.world();
    std::vector<std::string> texts;
    for (int round = 1; round <= kMaxRounds && !turns.shown; ++round) {
        std::ranges::fill(values, 1.0F);
        group.barrier().wait();
        if (context.rank() == 1) turns.await(turns.opened, round);
        Work sum = group.all_reduce(values, ReduceOp::Sum);
        if (context.rank() == 0) {
            turns.say(turns.opened, round);
            std::this_thread::sleep_for(milliseconds(1));
            sum.wait();
            try {
                group.monitored_barrier(milliseconds(100), "save");
            } catch (const Error& error) {
                texts.emplace_back(error.what());
                // Done for rank 1 once it has waited; until then it has done the barrier before it as the last.
                const auto before = fmt::format("it last completed #{}", 2 * round - 1);
                turns.shown = texts.back().find(before) != std::string::npos;
            }
            turns.say(turns.missed, round);
        } else {
            turns.await(turns.missed, round);
            sum.wait();
            try {
                group.monitored_barrier(milliseconds(100), "save");
            } catch (const Error&) {  // it comes late to it: both stay in step
            }
        }
        if (std::ranges::count(values, 2.0F) != std::ssize(values)) throw std::runtime_error("another sum");
    }
    return texts;
}

}  // namespace

TEST_CASE("a rank that has contributed to a sum and does not wait for it is in no operation", "[barrier][unit]") {
    if (std::thread::hardware_concurrency() < 2) {
        WARN("SKIPPED: ranks that share a core leave their part to be done later");
        return;
    }
    Turns turns;
    const auto outcomes = try_ranks({.ranks_per_node = {2}}, [&](Context& context) {
        constexpr std::size_t kCount = 8192;
        auto* const values = static_cast<float*>(context.world().arena().allocate(kCount * sizeof(float)));
        return miss_who_does_not_wait(context, {values, kCount}, turns);
    });
    REQUIRE(outcomes[0].value);
    REQUIRE(outcomes[1].value);
    const auto& texts = *outcomes[0].value;
    for (const std::string& text : texts)
        CHECK_THAT(text, Catch::Contains("is alive and in no operation; it last completed #"));
    CHECK(turns.shown);  // else rank 0 has noticed at once each time
}

TEST_CASE("a monitored barrier is passed even if the last rank dies before it sets the state", "[barrier][unit]") {
    const auto errors = errors_of({.ranks_per_node = {3}}, [](Context& context) {
        context.world().barrier().wait();
        if (context.rank() != 2) return context.world().monitored_barrier(milliseconds(3'000));
        // As far as rank 2 comes: its card and its count, but not the word that all have come.
        Store& store = context.store();
        const std::string prefix = "ddp/0/of-3/world/monitored/1/";
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
