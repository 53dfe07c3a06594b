// Small messages inside a node, sent and received in the call itself wherever that is possible: in the right order with
// all others, as far as there is room, and without leaving a rank asleep.

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"
#include "worker_lib/src/native/shm/waiter.hpp"

using namespace ddp;
using namespace ddp::testing;

namespace {

using Clock = std::chrono::steady_clock;

struct Message {
    int from = 0;
    int to = 0;
    int tag = 0;
    std::size_t count = 0;
    std::vector<std::int64_t> values;
};

/// Returns a few messages for each pair, the same on all ranks, of sizes that are eager, offered, or empty.
std::vector<Message> messages(int ranks, std::mt19937& random) {
    constexpr std::array<std::size_t, 6> kCounts{0, 1, 1, 200, 2048, 2100};
    std::vector<Message> all;
    for (int i = 0; i < ranks * ranks; ++i) {
        const auto some = random() % 4;
        for (unsigned j = 0; j < some; ++j) {
            const int tag = static_cast<int>(random() % 3);
            all.push_back({i / ranks, i % ranks, tag, kCounts[random() % kCounts.size()], {}});
        }
    }
    std::ranges::shuffle(all, random);
    return all;
}

/// Posts this rank's messages, in a random order that keeps the one of each tag, waits, and returns which differ.
int exchange(ProcessGroup& world, std::vector<Message> all, std::mt19937& own) {
    std::vector<Work> works;
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < all.size(); ++i) {
        Message& one = all[i];
        one.values.assign(one.count, one.from == world.rank() ? static_cast<std::int64_t>(i) : -1);
        if (one.from == world.rank() || one.to == world.rank()) order.push_back(i);
    }
    std::vector<std::vector<std::int64_t>> received(all.size());
    const int turn = static_cast<int>(own() % 3);
    std::ranges::stable_sort(order, {}, [&](std::size_t i) { return (all[i].tag + turn) % 3; });
    for (const std::size_t i : order) {
        Message& one = all[i];
        if (one.from == world.rank()) works.push_back(world.send(Buffer(std::span(one.values)), one.to, one.tag));
        if (one.to != world.rank()) continue;
        received[i].assign(one.count, -1);
        works.push_back(world.recv(Buffer(std::span(received[i])), one.from, one.tag));
        if (own() % 4 == 0) std::this_thread::yield();
    }
    for (Work& work : works) work.wait();
    int wrong = 0;
    for (const std::size_t i : order) {
        if (all[i].to != world.rank()) continue;
        for (const std::int64_t value : received[i]) wrong += value != static_cast<std::int64_t>(i);
    }
    return wrong;
}

}  // namespace

TEST_CASE("immediate messages and others do not overtake each other", "[p2p][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{2}, {3}, {2, 1}}));
    const auto results = run_ranks({.ranks_per_node = shape}, [](Context& context) {
        std::mt19937 common(7);
        std::mt19937 own(static_cast<unsigned>(context.rank()));
        int wrong = 0;
        for (int round = 0; round < 150; ++round) {
            wrong += exchange(context.world(), messages(context.world().size(), common), own);
            std::int64_t value = round;  // and one of those that are mostly immediate
            std::int64_t got = -1;
            TransferBatch batch = context.world().batch();
            batch.send(value, (context.rank() + 1) % context.world().size(), 9)
                .recv(got, (context.rank() + context.world().size() - 1) % context.world().size(), 9);
            batch.start().wait();
            wrong += got != round;
        }
        return wrong;
    });
    CHECK(results == std::vector<int>(results.size()));
}

TEST_CASE("small messages without end are sent as far as there is room, and arrive in order", "[p2p][unit]") {
    const auto results = run_ranks({.ranks_per_node = {2}}, [](Context& context) {
        ProcessGroup& world = context.world();
        std::int64_t wrong = 0;
        for (std::int64_t i = 0; i < 20'000; ++i) {
            std::int64_t value = world.rank() == 0 ? i : -1;
            world.rank() == 0 ? world.send(value, 1).wait() : world.recv(value, 0).wait();
            wrong += value != i;
        }
        std::vector<std::int64_t> large(2048, world.rank());
        for (int i = 0; i < 100; ++i) {
            const Buffer all = Buffer(large);
            world.rank() == 1 ? world.send(all, 0).wait() : world.recv(all, 1).wait();
        }
        return wrong + (large.back() != 1);
    });
    CHECK(results == std::vector<std::int64_t>(2));
}

TEST_CASE("an immediate message wakes a sleeping receiver", "[p2p][unit]") {
    // On a busy machine few receivers wake up in time; none does, if they are not woken.
    constexpr int kRounds = 400;
    constexpr int kEnough = 5;
    std::atomic<bool> shown{false};
    (void)run_ranks({.ranks_per_node = {2}}, [&](Context& context) {
        ProcessGroup& world = context.world();
        int woken = 0;
        for (int round = 0; round < kRounds; ++round) {
            std::int64_t value = 0;
            world.barrier().wait();
            if (shown) break;
            const auto begin = Clock::now();
            if (world.rank() == 0) {
                // By then the other rank has stopped spinning, and sleeps.
                while (Clock::now() < begin + std::chrono::milliseconds(5)) std::this_thread::yield();
                world.send(value, 1).wait();
                world.recv(value, 1).wait();
                if (round > 0) woken += Clock::now() - begin < detail::Waiter::kNap / 2;  // the first one connects them
                shown = woken == kEnough;
            } else {
                world.recv(value, 0).wait();
                world.send(value, 0).wait();
            }
        }
        return woken;
    });
    CHECK(shown);
}

TEST_CASE("an earlier message is received before one that has just arrived", "[p2p][unit]") {
    const auto results = run_ranks({.ranks_per_node = {2}}, [](Context& context) {
        ProcessGroup& world = context.world();
        std::vector<std::int64_t> got(3, -1);
        for (std::int64_t i = 0; i < 3; ++i) {
            if (world.rank() == 0) {
                std::int64_t value = i;
                world.send(value, 1, i == 1 ? 2 : 1).wait();
            }
            world.barrier().wait();
            if (world.rank() == 1 && i == 1) world.recv(got[1], 0, 2).wait();  // the first one is unexpected
            world.barrier().wait();
        }
        if (world.rank() == 0) return got;
        world.recv(got[0], 0, 1).wait();
        world.recv(got[2], 0, 1).wait();
        return got;
    });
    CHECK(results[1] == std::vector<std::int64_t>{0, 1, 2});
}

TEST_CASE("a receive takes no message that an earlier receive waits for", "[p2p][unit]") {
    const auto results = run_ranks({.ranks_per_node = {2}}, [](Context& context) {
        ProcessGroup& world = context.world();
        int wrong = 0;
        for (std::int64_t i = 0; i < 300; ++i) {
            std::int64_t first = world.rank() == 0 ? i : -1;
            std::int64_t second = world.rank() == 0 ? i + 1000 : -1;
            if (world.rank() == 0) {
                world.barrier().wait();
                world.send(first, 1).wait();
                world.send(second, 1).wait();
                if (i % 2 == 0) world.barrier().wait();
            } else if (i % 2 == 0) {
                Work before = world.recv(first, 0);
                world.barrier().wait();
                world.barrier().wait();
                world.recv(second, 0).wait();
                before.wait();
            } else {
                world.barrier().wait();
                TransferBatch both = world.batch();
                both.recv(first, 0).recv(second, 0);
                both.start().wait();
            }
            wrong += first != i || second != i + 1000;
        }
        return wrong;
    });
    CHECK(results == std::vector<int>(2));
}

TEST_CASE("small messages do not split a large one that is being sent", "[p2p][unit]") {
    const auto results = run_ranks({.ranks_per_node = {2}}, [](Context& context) {
        ProcessGroup& world = context.world();
        std::vector<std::int64_t> large(1 << 19);
        int wrong = 0;
        for (std::int64_t i = 0; i < 10; ++i) {
            std::vector<std::int64_t> small(300, -1);
            if (world.rank() == 0) {
                std::ranges::fill(large, i);
                Work one = world.send(large, 1, 1);
                for (std::int64_t& value : small) {
                    value = i;
                    world.send(value, 1, 2).wait();
                }
                one.wait();
            } else {
                Work one = world.recv(large, 0, 1);
                for (std::int64_t& value : small) world.recv(value, 0, 2).wait();
                one.wait();
            }
            wrong += static_cast<int>(std::ranges::count(large, i)) != (1 << 19);
            wrong += static_cast<int>(std::ranges::count(small, i)) != 300;
        }
        return wrong;
    });
    CHECK(results == std::vector<int>(2));
}

TEST_CASE("no more eager messages are sent than the window holds", "[p2p][unit]") {
    constexpr int kSent = 40;
    const auto results = run_ranks({.ranks_per_node = {2}}, [](Context& context) {
        ProcessGroup& world = context.world();
        std::vector<std::byte> message(ProcessGroup::kEagerBytes);
        const Buffer all{message.data(), message.size(), DType::U8};
        std::vector<Work> works;
        std::vector<std::byte> first(1);
        const Buffer one{first.data(), first.size(), DType::U8};
        world.rank() == 0 ? world.send(one, 1).wait() : world.recv(one, 0).wait();  // so that they are connected
        for (int i = 0; i < kSent && world.rank() == 0; ++i) works.push_back(world.send(all, 1));
        const auto done = std::ranges::count_if(works, [](const Work& work) { return work.done(); });
        world.barrier().wait();
        for (int i = 0; i < kSent && world.rank() == 1; ++i) world.recv(all, 0).wait();
        for (Work& work : works) work.wait();
        return static_cast<int>(done);
    });
    CHECK(results[0] > 7);
    CHECK(results[0] < 16);
}
