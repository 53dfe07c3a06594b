// Of sides that exclude each other one goes on; what the ranks get that are excluded, left out, or reported lost.

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/group/shrink/shrink_world.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"
#include "tests/unit/worker_lib/support/world_errors.hpp"
#include "worker_lib/src/group/shrink/journal.hpp"

using namespace ddp;
using namespace ddp::testing;

TEST_CASE("a rank that is left out of a shrink learns it at once", "[shrink][unit]") {
    const bool waits = GENERATE(false, true);  // whether it calls before, or after, the others have gone on
    const auto store = std::make_shared<WatchedStore>();
    // No rank learns the request of rank 2: the others would disagree with it.
    const std::string request = "ddp/0/of-3/world/shrink/request/2";
    store->before = [&](std::string_view key, std::string_view) {
        if (waits && key == request) store->set("called", "yes");
        if (waits && key == request) (void)store->get("gone on/0", kPatience);
    };
    Gate gate(3);
    const auto began = std::chrono::steady_clock::now();
    const auto texts = run_ranks({.ranks_per_node = {3}}, store, [&](Context& context) {
        std::string text;
        if (context.rank() == 2) {
            if (!waits) (void)store->get_all({"gone on/0", "gone on/1"}, kPatience);
            text = outcome_of([&] { return shrink(context, {}); });
        } else {
            if (waits) (void)store->get("called", kPatience);
            text = outcome_of([&] { return shrink(context, {2}); });
            store->set("gone on/" + std::to_string(context.rank()), "yes");
        }
        gate.pass();
        return text;
    });
    CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds(10));  // and not after 30 s
    CHECK(texts[0] == "2");
    CHECK(texts[1] == "2");
    CHECK_THAT(texts[2], Catch::Contains("ranks 0 and 1 have gone on in a group without " + named(2)) ||
                             Catch::Contains("excludes no rank, "));
    if (!waits)
        CHECK_THAT(texts[2], Catch::Contains("End that rank, or have the others call shrink() of 'world' again"));
}

TEST_CASE("a rank that was left out is included when all call again", "[shrink][unit]") {
    Gate gate(3);
    const auto sizes = run_ranks({.ranks_per_node = {3}}, [&](Context& context) {
        int size = 0;
        if (context.rank() != 2) size = shrink(context, {2});
        gate.pass();
        // Rank 2 may be first, and learn that the others have gone on.
        for (;;) {
            try {
                return 10 * size + shrink(context, {});
            } catch (const Error& error) {
                if (error.code() != ErrorCode::Mismatch || context.rank() != 2) throw;
            }
        }
    });
    CHECK(sizes == std::vector<int>{23, 23, 3});
}

TEST_CASE("a rank that was included again gets no error about the group that it was left out of", "[shrink][unit]") {
    const auto store = std::make_shared<WatchedStore>();
    std::atomic<bool> once_more{false};  // by rank 2, which looks around for the first time when it reads the count
    store->before_add = [&](std::string_view key, std::int64_t amount) {
        if (once_more && amount == 0 && key.find("/shrink/") != std::string_view::npos) store->set("looked", "yes");
    };
    Gate gate(3);
    const auto sizes = run_ranks({.ranks_per_node = {3}}, store, [&](Context& context) {
        if (context.rank() != 2) (void)shrink(context, {2});
        gate.pass();
        for (;;) {  // as above
            try {
                (void)shrink(context, {});
                break;
            } catch (const Error& error) {
                if (error.code() != ErrorCode::Mismatch || context.rank() != 2) throw;
            }
        }
        gate.pass();
        // Once more, rank 2 first: it has gone on with the others since then.
        if (context.rank() == 2) once_more = true;
        if (context.rank() != 2) (void)store->get("looked", kPatience);
        return shrink(context, {});
    });
    CHECK(sizes == std::vector<int>{3, 3, 3});
}

TEST_CASE("a rank that has left a group for one that was formed from it does not count as lost", "[shrink][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{3}, {1, 1, 1}}));
    const auto store = std::make_shared<WatchedStore>();
    Gate gate(3);
    const auto texts = run_ranks({.ranks_per_node = shape}, store, [&](Context& context) {
        auto group = context.world().split(0, context.rank(), "part");
        std::string text;
        if (context.rank() == 2) (void)store->get_all({"gone on/0", "gone on/1"}, kPatience);
        if (context.rank() != 2) group = group->shrink(std::vector<int>{2});
        if (context.rank() != 2) store->set("gone on/" + std::to_string(context.rank()), "yes");
        if (context.rank() == 2) text = outcome_of([&] { return group->shrink(std::vector<int>{0, 1})->size(); });
        gate.pass();
        return text;
    });
    CHECK_THAT(texts[2], Catch::Contains(") has gone on already in a group without "));
}

TEST_CASE("a rank that is about to report another as lost decides again when that one has gone on meanwhile",
          "[shrink][unit]") {
    const auto store = std::make_shared<WatchedStore>();
    // Rank 1 has read the journal, and is held up before it looks around until rank 0 has gone on and left the group.
    store->after_add = [&](std::string_view key, std::int64_t amount) {
        if (amount != 1 || key.find("/shrink/0/1/count") == std::string_view::npos) return;
        store->set("has come", "yes");
        (void)store->get("gone on", kPatience);
    };
    std::atomic<int> accusations{0};  // one that is tried, but not written: it finds that rank 0 has gone on
    store->before = [&](std::string_view key, std::string_view value) {
        if (is_decision(key, value, "gone")) ++accusations;
    };
    Gate gate(2);
    const auto texts = run_ranks({.ranks_per_node = {2}}, store, [&](Context& context) {
        auto group = context.world().split(0, context.rank(), "part");
        std::string text;
        if (context.rank() == 0) {
            (void)store->get("has come", kPatience);
            group = group->shrink(std::vector<int>{1});
            store->set("gone on", "yes");
            text = std::to_string(group->size());
        } else {
            text = outcome_of([&] { return group->shrink(std::vector<int>{0})->size(); });
        }
        gate.pass();
        return text;
    });
    CHECK(texts[0] == "1");
    CHECK_THAT(texts[1], Catch::Contains(named(0) + ") has gone on already in a group without "));
    CHECK(accusations == 1);
}

TEST_CASE("of two sides that exclude each other the larger one goes on, or that with the lowest rank",
          "[shrink][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{4}, {2, 2}, {1, 1, 1, 1}}));
    const bool equal = GENERATE(false, true);
    const bool loser_first = GENERATE(false, true);
    const std::vector<int> losers = equal ? std::vector<int>{2, 3} : std::vector<int>{2};
    const std::vector<int> winners = equal ? std::vector<int>{0, 1} : std::vector<int>{0, 1, 3};
    const auto loses = [&](int rank) { return std::find(losers.begin(), losers.end(), rank) != losers.end(); };
    // The second side calls when the first has published its requests. Those are held up then until the others
    // have said it, too: no time decides here.
    const auto store = std::make_shared<WatchedStore>();
    const auto wishes_of = [](const std::vector<int>& ranks) {
        std::vector<std::string> keys;
        for (const int rank : ranks) keys.push_back("ddp/0/of-4/world/shrink/request/" + std::to_string(rank));
        return keys;
    };
    store->after = [&](std::string_view key, std::string_view value) {
        if (!loser_first || value.find("excludes") == std::string_view::npos) return;
        for (const std::string& own : wishes_of(losers)) {
            if (key == own) (void)store->get_all(wishes_of(winners), kPatience);
        }
    };
    Gate gate(4);
    const auto texts = run_ranks({.ranks_per_node = shape}, store, [&](Context& context) {
        const bool second = loses(context.rank()) != loser_first;
        if (second) (void)store->get_all(wishes_of(loser_first ? losers : winners), kPatience);
        const auto text = outcome_of([&] { return shrink(context, loses(context.rank()) ? winners : losers); });
        gate.pass();
        return text;
    });
    for (int rank = 0; rank < 4; ++rank) {
        const std::string& text = texts[static_cast<std::size_t>(rank)];
        if (!loses(rank)) CHECK(text == std::to_string(winners.size()));
        if (!loses(rank)) continue;
        const std::string words = std::string(equal ? "ranks 0 and 1" : "ranks 0, 1 and 3") + " exclude rank ";
        CHECK_THAT(text, Catch::Contains(words) || Catch::Contains(") has gone on already in a group without rank "));
    }
}

TEST_CASE("a side that arrives when another has gone on is refused, even if it is larger", "[shrink][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{4}, {2, 2}, {1, 1, 1, 1}}));
    Gate gate(4);
    const auto texts = run_ranks({.ranks_per_node = shape}, [&](Context& context) {
        const bool first = context.rank() == 2;
        if (!first) (void)context.store().get("gone on", kPatience);
        const auto text = outcome_of([&] {
            return shrink(context, first ? std::vector<int>{0, 1, 3} : std::vector<int>{2});
        });
        if (first) context.store().set("gone on", "yes");
        gate.pass();
        return text;
    });
    CHECK(texts[2] == "1");
    for (const std::size_t rank : {0, 1, 3})
        CHECK_THAT(texts[rank], Catch::Contains(named(2) + ") has gone on already"));
}

TEST_CASE("a rank in its call denies that it is lost", "[shrink][unit]") {
    const auto store = detail::make_local_store();
    const std::string prefix = "ddp/0/of-2/world/shrink/journal/";
    (void)store->set_once(prefix + "1", detail::ShrinkJournal::accusation(1));
    const auto sizes = run_ranks({.ranks_per_node = {2}}, store, [](Context& context) {
        // Rank 0 comes when rank 1 has read what is said of it.
        if (context.rank() == 0) (void)context.store().get("ddp/0/of-2/world/shrink/journal/2", kPatience);
        return shrink(context, {});
    });
    CHECK(sizes == std::vector<int>{2, 2});
    CHECK(store->get(prefix + "2", kPatience) == detail::ShrinkJournal::presence(1));
}
