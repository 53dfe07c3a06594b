// Contexts that are made again: after one that failed, and in a world of another size over the same store.

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"
#include "tests/unit/worker_lib/support/watched_store.hpp"
#include "worker_lib/src/bootstrap/environment.hpp"

using namespace ddp;
using namespace ddp::testing;
using std::chrono::milliseconds;

namespace {

/// Makes a rank's Context; returns the sum of all ranks, or why there is none.
std::string start(const LocalWorld& world, const std::shared_ptr<Store>& store, int rank) {
    try {
        Context context(world.environment(rank), store, world.options());
        int sum = rank;
        context.world().all_reduce(sum, ReduceOp::Sum).wait();
        return std::to_string(sum);
    } catch (const Error& error) {
        return (error.code() == ErrorCode::Timeout ? "late: " : "failed: ") + std::string(error.what());
    }
}

std::future<std::string> begin(const LocalWorld& world, const std::shared_ptr<Store>& store, int rank) {
    return std::async(std::launch::async, [=] { return start(world, store, rank); });
}

std::vector<std::string> start_all(const LocalWorld& world, const std::shared_ptr<Store>& store) {
    std::vector<std::future<std::string>> ranks;
    for (int rank = 0; rank < world.size(); ++rank) ranks.push_back(begin(world, store, rank));
    std::vector<std::string> words;
    for (auto& rank : ranks) words.push_back(rank.get());
    return words;
}

}  // namespace

TEST_CASE("a rank that joins when another has just given up waits for it, and they meet when both try again",
          "[context][unit]") {
    const std::vector<int> shape = GENERATE(values<std::vector<int>>({{2}, {1, 1}}));
    const std::shared_ptr<Store> store = detail::make_local_store();
    const LocalWorld hasty{.ranks_per_node = shape, .init_timeout = milliseconds(300)};
    for (int round = 0; round < 2; ++round) {
        for (const int rank : {0, 1})
            CHECK_THAT(start(hasty, store, rank), Catch::StartsWith("late: ") && Catch::Contains(" to join"));
    }
    const LocalWorld patient{.ranks_per_node = shape};
    CHECK(start_all(patient, store) == std::vector<std::string>{"1", "1"});
}

TEST_CASE("a rank that tries again waits for ranks that have not seen yet that the attempt failed", "[context][unit]") {
    const std::vector<int> shape = GENERATE(values<std::vector<int>>({{2}, {1, 1}}));
    const auto store = std::make_shared<WatchedStore>();
    std::atomic<bool> held{false};
    store->after = [&](std::string_view key, std::string_view) {  // rank 1 has published its address, and stops
        if (key.ends_with("/world/member/1") && !held.exchange(true)) (void)store->get("go on", kPatience);
    };
    const LocalWorld hasty{.ranks_per_node = shape, .init_timeout = milliseconds(1'500)};
    const LocalWorld patient{.ranks_per_node = shape};
    auto second = begin(patient, store, 1);
    (void)store->get("ddp/0/of-2/rounds/1/came/1", kPatience);
    CHECK_THAT(start(hasty, store, 0), !Catch::Equals("1"));
    auto first = begin(patient, store, 0);
    (void)store->get("ddp/0/of-2/rounds/2/came/0", kPatience);
    store->set("go on", "yes");
    CHECK_THAT(second.get(), Catch::StartsWith("failed: "));
    CHECK(start(patient, store, 1) == "1");
    CHECK(first.get() == "1");
}

TEST_CASE("ranks that have not made equally many Contexts meet at their next one", "[context][unit]") {
    const auto store = std::make_shared<WatchedStore>();
    std::atomic<int> late_accesses{0};  // accesses to the first round: a rank does not look at all earlier rounds
    const LocalWorld hasty{.ranks_per_node = {1, 1}, .init_timeout = milliseconds(1)};
    const LocalWorld world{.ranks_per_node = {1, 1}};
    for (int round = 0; round < 3; ++round) {
        CHECK(start_all(world, store) == std::vector<std::string>{"1", "1"});
        CHECK_THAT(start(hasty, store, round % 2), Catch::StartsWith("late: "));
        store->before = [&](std::string_view key, std::string_view) {
            if (key.find("/rounds/1/") != std::string_view::npos) ++late_accesses;
        };
    }
    CHECK(late_accesses == 0);
}

TEST_CASE("a rank that never joined is named, not one that gave up before", "[context][unit]") {
    const std::shared_ptr<Store> store = detail::make_local_store();
    const LocalWorld hasty{.ranks_per_node = {3}, .init_timeout = milliseconds(200)};
    const LocalWorld patient{.ranks_per_node = {3}, .init_timeout = milliseconds(1'500)};
    auto slow = begin(patient, store, 1);
    (void)store->get("ddp/0/of-3/rounds/1/came/1", kPatience);
    const std::string text = start(hasty, store, 0);
    CHECK_THAT(text, Catch::Contains("waited 0.2 s for rank 2 of 3 to join"));
    CHECK_THAT(slow.get(), Catch::Contains("waited 1.5 s for rank 2 of 3 to join"));
}

TEST_CASE("a rank that gives up when all have joined, but not all are ready, fails no other rank", "[context][unit]") {
    const auto store = std::make_shared<WatchedStore>();
    store->before = [&](std::string_view key, std::string_view) {
        if (key.ends_with("/rounds/1/ready/1")) (void)store->get("given up", kPatience);
    };
    const LocalWorld hasty{.ranks_per_node = {2}, .init_timeout = milliseconds(500)};
    const LocalWorld patient{.ranks_per_node = {2}, .init_timeout = milliseconds(10'000)};
    auto second = begin(patient, store, 1);
    (void)store->get("ddp/0/of-2/rounds/1/count", kPatience);  // it has joined
    CHECK_THAT(start(hasty, store, 0), Catch::Contains("waited 0.5 s for rank 1 of 2 to join"));
    store->set("given up", "yes");
    CHECK(start(patient, store, 0) == "1");
    CHECK(second.get() == "1");
}

TEST_CASE("a rank that gives up at the moment when the last one joins names no culprit", "[context][unit]") {
    const auto store = std::make_shared<WatchedStore>();
    store->before = [&](std::string_view key, std::string_view) {
        if (key.ends_with("/rounds/1/ready/1")) (void)store->get("closed", kPatience);
    };
    store->after = [&](std::string_view key, std::string_view) {
        if (!key.ends_with("/rounds/1/outcome")) return;
        store->set("closed", "yes");
        (void)store->get("ddp/0/of-2/rounds/1/ready/1", kPatience);
    };
    const LocalWorld hasty{.ranks_per_node = {2}, .init_timeout = milliseconds(500)};
    auto second = begin({.ranks_per_node = {2}}, store, 1);
    CHECK_THAT(start(hasty, store, 0),
               Catch::Contains("for all 2 ranks to join, and the last of them joined too late"));
    CHECK(start({.ranks_per_node = {2}}, store, 0) == "1");
    CHECK(second.get() == "1");
}

TEST_CASE("a rank that gives up names none that this woke, and that had no time to report that it is ready",
          "[context][unit]") {
    const auto store = std::make_shared<WatchedStore>();
    store->before = [&](std::string_view key, std::string_view) {
        if (key.ends_with("/rounds/1/ready/1")) (void)store->get("given up", kPatience);
    };
    // Rank 2 has joined, and is not counted yet.
    (void)store->set_once("ddp/0/of-3/rounds/1/came/2", "0123 4567 host a, pid 71");
    const LocalWorld patient{.ranks_per_node = {3}};
    auto second = begin(patient, store, 1);
    (void)store->get("ddp/0/of-3/rounds/1/came/1", kPatience);
    const LocalWorld hasty{.ranks_per_node = {3}, .init_timeout = milliseconds(300)};
    CHECK_THAT(start(hasty, store, 0),
               Catch::Contains("for all 3 ranks to join, and the last of them joined too late"));
    store->set("given up", "yes");
    auto first = begin(patient, store, 0);
    CHECK(start(patient, store, 2) == "3");
    CHECK(first.get() == "3");
    CHECK(second.get() == "3");
}

TEST_CASE("a rank whose process ended while it waited is not counted for its successor", "[context][unit]") {
    const std::shared_ptr<Store> store = detail::make_local_store();
    const LocalWorld world{.ranks_per_node = {1, 1}};
    (void)store->set_once("ddp/0/of-2/rounds/1/came/1", "0123 4567 host a, pid 71");
    const bool counted = GENERATE(true, false);
    if (counted) store->add("ddp/0/of-2/rounds/1/count", 1);
    auto first = begin(world, store, 0);
    (void)store->get("ddp/0/of-2/rounds/1/" + std::string(counted ? "ready/0" : "came/0"), kPatience);
    CHECK(start(world, store, 1) == "1");
    CHECK(first.get() == "1");
}

TEST_CASE("a round whose closer ended before it woke the others keeps no rank waiting", "[context][unit]") {
    const std::shared_ptr<Store> store = detail::make_local_store();
    const LocalWorld world{.ranks_per_node = {1, 1}, .init_timeout = milliseconds(20'000)};
    (void)store->set_once("ddp/0/of-2/rounds/1/came/1", "0123 4567 host a, pid 71");
    (void)store->set_once("ddp/0/of-2/rounds/1/outcome", "closed 0123 4567 host a, pid 71");
    auto first = begin(world, store, 0);
    (void)store->get("ddp/0/of-2/rounds/1/came/0", kPatience);
    const auto began = std::chrono::steady_clock::now();
    CHECK(start(world, store, 1) == "1");
    CHECK(first.get() == "1");
    CHECK(std::chrono::steady_clock::now() - began < milliseconds(10'000));
}

TEST_CASE("a foreign value under the key that counts the rounds is reported", "[context][unit]") {
    const std::shared_ptr<Store> store = detail::make_local_store();
    store->set("ddp/0/of-1/rounds/decided", "soon");
    const std::string text = start(LocalWorld{.ranks_per_node = {1}}, store, 0);
    CHECK_THAT(text, Catch::Contains("finds 'soon' in the store under 'ddp/0/of-1/rounds/decided'"));
}

TEST_CASE("of two threads that join as the same rank one gets an error at once", "[context][unit]") {
    const std::shared_ptr<Store> store = detail::make_local_store();
    const LocalWorld world{.ranks_per_node = {1, 1}, .init_timeout = milliseconds(2'000)};
    auto one = begin(world, store, 1);
    auto other = begin(world, store, 1);
    const std::vector<std::string> texts{one.get(), other.get()};
    const auto is_told = [](const std::string& text) {
        return text.find("two threads of this process make a Context at the same time") != std::string::npos;
    };
    CHECK(std::ranges::count_if(texts, is_told) == 1);
    for (const std::string& text : texts) CHECK_THAT(text, Catch::StartsWith(is_told(text) ? "failed: " : "late: "));
}

TEST_CASE("two processes with the same RANK are named by host and pid", "[context][unit]") {
    const std::shared_ptr<Store> store = detail::make_local_store();
    for (const char* const round : {"1", "2"})
        (void)store->set_once(std::string("ddp/0/of-2/rounds/") + round + "/came/1", "0123 4567 host a, pid 71");
    const std::string text = start(LocalWorld{.ranks_per_node = {1, 1}}, store, 1);
    CHECK_THAT(text, Catch::Contains("cannot join, because host a, pid 71 has joined as the same rank") &&
                         Catch::Contains("two processes have the same RANK. Give each its own"));
}

TEST_CASE("a process of another container is not taken for this one, whose host name and pid it has",
          "[context][unit]") {
    const std::shared_ptr<Store> store = detail::make_local_store();
    const std::string place = "host " + detail::hostname() + ", pid " + std::to_string(::getpid());
    for (const char* const round : {"1", "2"})
        (void)store->set_once(std::string("ddp/0/of-2/rounds/") + round + "/came/1", "0123 4567 " + place);
    const std::string text = start(LocalWorld{.ranks_per_node = {1, 1}}, store, 1);
    CHECK_THAT(text, Catch::Contains("because " + place + " has joined") &&
                         Catch::Contains("two processes have the same RANK"));
}

TEST_CASE("worlds of other sizes follow each other over one store, though some ranks are new", "[context][unit]") {
    const std::shared_ptr<Store> store = detail::make_local_store();
    for (const int size : {2, 3, 2, 4}) {
        const LocalWorld world{.ranks_per_node = {1, size - 1}, .init_timeout = milliseconds(5'000)};
        const std::string sum = std::to_string(size * (size - 1) / 2);
        CHECK(start_all(world, store) == std::vector<std::string>(static_cast<std::size_t>(size), sum));
    }
}
