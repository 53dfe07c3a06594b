// A shrink() is decided once, however long the deciding rank is delayed, and also if it loses the store.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/group/shrink/shrink_world.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"
#include "tests/unit/worker_lib/support/world_errors.hpp"

using namespace ddp;
using namespace ddp::testing;

namespace {

/// Delays the first rank that is about to write an entry `what` until another has written one. Counts in `deciders` the
/// ranks that are about to.
void hold_up_first(WatchedStore& store, const std::string& what, std::atomic<int>& deciders) {
    store.before = [&store, &deciders, what](std::string_view key, std::string_view value) {
        if (is_decision(key, value, what) && ++deciders == 1) (void)store.get("decided", kPatience);
    };
    store.after = [&store, what](std::string_view key, std::string_view value) {
        if (is_decision(key, value, what)) store.set("decided", "yes");
    };
}

}  // namespace

TEST_CASE("if several ranks decide about a shrink, one decision counts, and all ranks follow it", "[shrink][unit]") {
    // Rank 2 has gone on alone, so ranks 0 and 1 must not: each of them finds that out, and puts it into other words.
    // The first is held up before it can write it down, until the other has.
    const auto store = std::make_shared<WatchedStore>();
    std::atomic<int> refusals{0};
    hold_up_first(*store, "refused", refusals);
    Gate gate(3);
    const auto texts = run_ranks({.ranks_per_node = {3}}, store, [&](Context& context) {
        std::string text;
        if (context.rank() == 2) text = std::to_string(shrink(context, {0, 1}));
        if (context.rank() == 2) store->set("gone on", "yes");
        if (context.rank() != 2) (void)store->get("gone on", kPatience);
        if (context.rank() != 2) text = outcome_of([&] { return shrink(context, {2}); });
        gate.pass();
        return text;
    });
    CHECK(refusals == 2);
    CHECK(texts[2] == "1");
    CHECK_THAT(texts[0], Catch::Contains(named(2) + ") has gone on already in a group without rank "));
    CHECK(texts[0] == texts[1]);
}

TEST_CASE("if the rank that decides about a shrink is delayed, the others decide, and all go on", "[shrink][unit]") {
    const auto store = std::make_shared<WatchedStore>();
    std::atomic<int> decisions{0};
    hold_up_first(*store, "met", decisions);
    const auto sizes =
        run_ranks({.ranks_per_node = {2, 1}}, store, [](Context& context) { return shrink(context, {}); });
    CHECK(sizes == std::vector<int>{3, 3, 3});
}

TEST_CASE("a rank that gives up when all have met goes on with the others", "[shrink][unit]") {
    // Rank 0 has waited long enough, but is held up before it says so until rank 1 has come and decided.
    const auto store = std::make_shared<WatchedStore>();
    store->before = [&](std::string_view key, std::string_view value) {
        if (!is_decision(key, value, "closed")) return;
        store->set("given up", "yes");
        (void)store->get("decided", kPatience);
    };
    store->after = [&](std::string_view key, std::string_view value) {
        if (is_decision(key, value, "met")) store->set("decided", "yes");
    };
    const LocalWorld world{.ranks_per_node = {2}, .init_timeout = milliseconds(2'000)};
    const auto sizes = run_ranks(world, store, [&](Context& context) {
        context.world().barrier().wait();
        if (context.rank() == 1) (void)store->get("given up", kPatience);
        return shrink(context, {});
    });
    CHECK(sizes == std::vector<int>{2, 2});
}

TEST_CASE("a rank that loses the store while it joins a shrink closes the round, and all meet when it calls again",
          "[shrink][unit]") {
    const bool counted = GENERATE(false, true);
    const bool for_longer = GENERATE(false, true);  // it can close the round only when it calls again
    const auto store = std::make_shared<WatchedStore>();
    const std::string first_entry = "ddp/0/of-2/world/shrink/journal/1";
    std::atomic<int> calls{0};
    std::atomic<int> losses{0};
    const auto lose = [&](int times) {
        if (losses < times && ++losses <= times) throw Error(ErrorCode::System, "the connection was reset");
    };
    const auto is_count = [](std::string_view key, std::int64_t amount) {
        return amount == 1 && key.find("/shrink/") != std::string_view::npos;
    };
    store->before_add = [&](std::string_view key, std::int64_t amount) {
        if (!is_count(key, amount)) return;
        // The first has given up before the other could find all there.
        if (++calls > 1) (void)store->get(first_entry, kPatience);
        if (!counted) lose(1);
    };
    store->after_add = [&](std::string_view key, std::int64_t amount) {
        if (is_count(key, amount) && counted) lose(1);
    };
    store->before = [&](std::string_view key, std::string_view value) {
        if (for_longer && is_decision(key, value, "closed")) lose(2);
    };
    auto words = run_ranks({.ranks_per_node = {2}}, store, [&](Context& context) -> std::string {
        try {
            return std::to_string(shrink(context, {}));
        } catch (const Error& error) {
            if (error.code() != ErrorCode::System) throw;
        }
        const bool closed = context.store().try_get(first_entry, milliseconds(0)).has_value();
        return (closed ? "closed, " : "open, ") + std::to_string(shrink(context, {}));
    });
    std::ranges::sort(words);
    CHECK(words == std::vector<std::string>{"2", for_longer ? "open, 2" : "closed, 2"});
}

TEST_CASE("what a rank wanted in an earlier call is no consent to a later one", "[shrink][unit]") {
    const auto store = std::make_shared<WatchedStore>();
    const std::string request = "ddp/0/of-3/world/shrink/request/";
    // Rank 2 hears what the others want while they want it: first that it is out, for they never hear of it then.
    store->after = [&](std::string_view key, std::string_view value) {
        if (key == request + "0" && value == "1 excludes 2") (void)store->get("disagreed", kPatience);
    };
    std::mutex mutex;
    std::set<std::thread::id> looked;  // threads of second calls that have read all requests
    std::atomic<bool> once_more{false};
    store->before_add = [&](std::string_view key, std::int64_t amount) {
        if (!once_more || amount != 0 || key.find("/shrink/none/") == std::string_view::npos) return;
        const std::lock_guard lock(mutex);
        if (looked.insert(std::this_thread::get_id()).second && looked.size() == 2) store->set("both looked", "yes");
    };
    Gate gate(3);
    Gate end(3);
    const auto texts =
        run_ranks({.ranks_per_node = {3}, .init_timeout = milliseconds(10'000)}, store, [&](Context& context) {
            const bool late = context.rank() == 2;
            auto text = outcome_of([&] { return shrink(context, late ? std::vector<int>{} : std::vector<int>{2}); });
            if (late) store->set("disagreed", "yes");
            gate.pass();
            once_more = true;
            if (late) (void)store->get("both looked", kPatience);
            text += ", " + outcome_of([&] { return shrink(context, late ? std::vector<int>{0} : std::vector<int>{}); });
            end.pass();
            return text;
        });
    for (const std::size_t rank : {0, 1})
        CHECK_THAT(texts[rank], Catch::StartsWith("2, shrink of group 'world': the survivors disagree: ") &&
                                    Catch::Contains("excludes no rank, " + named(2) + ") excludes rank 0"));
    CHECK_THAT(texts[2], Catch::StartsWith("shrink of group 'world': the survivors disagree: "));
}

TEST_CASE("survivors that got different failures agree when they exclude each other's, too", "[shrink][unit]") {
    Gate end(4);
    const auto words = run_ranks({.ranks_per_node = {2, 2}}, [&](Context& context) {
        const int rank = context.rank();
        std::string text;
        if (rank == 0 || rank == 3) {  // the others are late, each for the rank that waits on its node
            try {
                (void)shrink(context, {rank == 0 ? 1 : 2});
            } catch (const Error& error) {
                text = fmt::format("{} | {} | ", error.what(), fmt::join(error.culprits(), " "));
                text += outcome_of([&] { return shrink(context, error.culprits()); });
            }
        }
        end.pass();
        return text;
    });
    for (const std::size_t rank : {0, 3})
        CHECK_THAT(words[rank], Catch::StartsWith("shrink of group 'world': the survivors disagree: ") &&
                                    Catch::Contains("All must exclude the same ranks: call it again on every rank that "
                                                    "is left, without ranks 1 and 2 | ") &&
                                    Catch::EndsWith(" | 1 2 | 2"));
}

TEST_CASE("a rank that has requested the same is not asked again while this one waits for the others",
          "[shrink][unit]") {
    const auto store = std::make_shared<WatchedStore>();
    const std::string request = "ddp/0/of-3/world/shrink/request/1";
    std::atomic<int> looks{0};
    std::atomic<int> reads{0};
    std::atomic<bool> once_more{false};
    store->before_get = [&](std::string_view key) {
        if (once_more && key == request) ++reads;
    };
    store->before_add = [&](std::string_view key, std::int64_t amount) {
        if (once_more && amount == 0 && key.find("/shrink/") != std::string_view::npos)
            store->set("looks/" + std::to_string(++looks), "yes");
    };
    const auto wait_for_looks = [&](int more) { (void)store->get("looks/" + std::to_string(looks + more), kPatience); };
    Gate wished(2);
    Gate counted(2);
    Gate gate(3);
    const auto sizes = run_ranks({.ranks_per_node = {3}}, store, [&](Context& context) {
        (void)shrink(context, {});  // a group that was formed before is no reason to ask more
        gate.pass();
        once_more = true;
        if (context.rank() == 0) return shrink(context, {});
        if (context.rank() == 1) store->set(request, "2 excludes ");  // and then it stands still for a while
        wished.pass();
        wait_for_looks(4);  // rank 0 has heard it
        const int before = reads;
        wait_for_looks(4);
        const int more = reads - before;
        counted.pass();  // the other one's call reads it, too
        return 10 * more + shrink(context, {});
    });
    CHECK(sizes == std::vector<int>{3, 3, 3});
}
