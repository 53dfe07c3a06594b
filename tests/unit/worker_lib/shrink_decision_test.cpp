// What is decided about a shrink() is decided once, however long who decides is held up; whoever is out is told so.

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/local_world.hpp"
#include "tests/unit/worker_lib/world_errors.hpp"
#include "worker_lib/src/shrink_journal.hpp"

using namespace ddp;
using namespace ddp::testing;
using std::chrono::milliseconds;

namespace {

constexpr milliseconds kPatience{20'000};

/// Tells a test of each word before, and after, it is written, and so can hold up its writer.
class WatchedStore final : public Store {
public:
    using Hook = std::function<void(std::string_view key, std::string_view value)>;

    void set(std::string_view key, std::string_view value) override {
        if (before) before(key, value);
        store_->set(key, value);
        if (after) after(key, value);
    }
    std::string set_once(std::string_view key, std::string_view value) override {
        if (before) before(key, value);
        std::string there = store_->set_once(key, value);
        if (after) after(key, value);
        return there;
    }
    std::string get(std::string_view key, milliseconds timeout) override { return store_->get(key, timeout); }
    std::int64_t add(std::string_view key, std::int64_t amount) override {
        if (before_add) before_add(key, amount);
        const std::int64_t value = store_->add(key, amount);
        if (after_add) after_add(key, amount);
        return value;
    }
    std::string local_address() const override { return store_->local_address(); }

    using AddHook = std::function<void(std::string_view key, std::int64_t amount)>;
    AddHook before_add;
    AddHook after_add;
    Hook before;
    Hook after;

private:
    const std::shared_ptr<Store> store_ = detail::make_local_store();
};

/// The size of the group of those who stay.
int shrink(Context& context, const std::vector<int>& exclude) { return context.world().shrink(exclude)->size(); }

/// What became of a call: "3" ranks, or why it failed.
template <typename Call>
std::string outcome_of(Call call) {
    try {
        return std::to_string(call());
    } catch (const Error& error) {
        return (error.code() == ErrorCode::Mismatch ? "" : "wrong code: ") + std::string(error.what());
    }
}

bool is_decision(std::string_view key, std::string_view value, std::string_view what) {
    return key.find("/shrink/journal/") != std::string_view::npos && value.starts_with(what);
}

/// Keeps the first who wants to write a word `what` into the journal from it until another has written one. Counts in
/// `deciders` who wants to.
void hold_up_first(WatchedStore& store, const std::string& what, std::atomic<int>& deciders) {
    store.before = [&store, &deciders, what](std::string_view key, std::string_view value) {
        if (is_decision(key, value, what) && ++deciders == 1) (void)store.get("decided", kPatience);
    };
    store.after = [&store, what](std::string_view key, std::string_view value) {
        if (is_decision(key, value, what)) store.set("decided", "yes");
    };
}

}  // namespace

TEST_CASE("of several who decide about a shrink one counts, and all do as it says", "[shrink][unit]") {
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

TEST_CASE("who decides about a shrink may be held up: the others decide, and all go on", "[shrink][unit]") {
    const auto store = std::make_shared<WatchedStore>();
    std::atomic<int> decisions{0};
    hold_up_first(*store, "met", decisions);
    const auto sizes =
        run_ranks({.ranks_per_node = {2, 1}}, store, [](Context& context) { return shrink(context, {}); });
    CHECK(sizes == std::vector<int>{3, 3, 3});
}

TEST_CASE("who gives up when all have met goes on with the others", "[shrink][unit]") {
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

TEST_CASE("who is left out of a shrink is told at once", "[shrink][unit]") {
    const bool waits = GENERATE(false, true);  // whether it calls before, or after, the others have gone on
    const auto store = std::make_shared<WatchedStore>();
    // What rank 2 wants is made known to nobody, or the others would disagree with it.
    const std::string wish = "ddp/0/of-3/world/shrink/wish/2";
    store->before = [&](std::string_view key, std::string_view) {
        if (waits && key == wish) store->set("called", "yes");
        if (waits && key == wish) (void)store->get("gone on/0", kPatience);
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
                             Catch::Contains("excludes nobody, "));
    if (!waits) CHECK_THAT(texts[2], Catch::Contains("End it, or have the others call shrink() of 'world' again"));
}

TEST_CASE("who was left out is taken in when all call again", "[shrink][unit]") {
    Gate gate(3);
    const auto sizes = run_ranks({.ranks_per_node = {3}}, [&](Context& context) {
        int size = 0;
        if (context.rank() != 2) size = shrink(context, {2});
        gate.pass();
        // Rank 2 may come first, and be told that the others have gone on.
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

TEST_CASE("who was taken in again is not told of the group that it was left out of", "[shrink][unit]") {
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

TEST_CASE("who has left a group for one that was formed of it is not taken for dead", "[shrink][unit]") {
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

TEST_CASE("who loses the store while it comes to a shrink can call again, and all meet", "[shrink][unit]") {
    const bool counted = GENERATE(false, true);
    const auto store = std::make_shared<WatchedStore>();
    std::atomic<int> calls{0};
    std::atomic<bool> lost{false};
    const auto lose = [&] {
        if (!lost.exchange(true)) throw Error(ErrorCode::System, "the connection was reset");
    };
    const auto is_count = [](std::string_view key, std::int64_t amount) {
        return amount == 1 && key.find("/shrink/") != std::string_view::npos;
    };
    store->before_add = [&](std::string_view key, std::int64_t amount) {
        if (!is_count(key, amount)) return;
        // The first has given up before the other could find all there.
        if (++calls > 1) (void)store->get("ddp/0/of-2/world/shrink/journal/1", kPatience);
        if (!counted) lose();
    };
    store->after_add = [&](std::string_view key, std::int64_t amount) {
        if (is_count(key, amount) && counted) lose();
    };
    const auto sizes = run_ranks({.ranks_per_node = {2}}, store, [](Context& context) {
        try {
            return shrink(context, {});
        } catch (const Error& error) {
            if (error.code() != ErrorCode::System) throw;
        }
        return 10 + shrink(context, {});
    });
    CHECK(sizes[0] + sizes[1] == 14);
}

TEST_CASE("of two sides that exclude each other the larger one goes on, or that with the lowest rank",
          "[shrink][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{4}, {2, 2}, {1, 1, 1, 1}}));
    const bool equal = GENERATE(false, true);
    const bool loser_first = GENERATE(false, true);
    const std::vector<int> losers = equal ? std::vector<int>{2, 3} : std::vector<int>{2};
    const std::vector<int> winners = equal ? std::vector<int>{0, 1} : std::vector<int>{0, 1, 3};
    const auto loses = [&](int rank) { return std::find(losers.begin(), losers.end(), rank) != losers.end(); };
    // Whoever is to come second calls when the first have said what they want. Those are held up then until the others
    // have said it, too: no time decides here.
    const auto store = std::make_shared<WatchedStore>();
    const auto wishes_of = [](const std::vector<int>& ranks) {
        std::vector<std::string> keys;
        for (const int rank : ranks) keys.push_back("ddp/0/of-4/world/shrink/wish/" + std::to_string(rank));
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

TEST_CASE("a side that comes when another has gone on is refused, even if it is larger", "[shrink][unit]") {
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

TEST_CASE("a rank in its call denies that it is gone", "[shrink][unit]") {
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
