// Many operations in flight: order, handles, callbacks, several groups.

#include <atomic>
#include <future>
#include <thread>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"
#include "worker_lib/src/group/split_names.hpp"

using namespace ddp;
using namespace ddp::testing;

TEST_CASE("queued operations run in order, whatever the ranks' pace", "[native][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{2}, {4}, {2, 2}}));
    const auto results = run_ranks({.ranks_per_node = shape}, [](Context& context) {
        std::vector<Work> works;
        const auto ranks = static_cast<std::int64_t>(context.world_size());
        std::vector<std::vector<std::int64_t>> buckets(200, std::vector<std::int64_t>(500));
        for (std::size_t i = 0; i < buckets.size(); ++i) {
            if (context.rank() == static_cast<int>(i) % context.world_size()) std::this_thread::yield();
            std::fill(buckets[i].begin(), buckets[i].end(), static_cast<std::int64_t>(i));
            works.push_back(i % 3 == 0 ? context.world().broadcast(Buffer(std::span(buckets[i])),
                                                                   static_cast<int>(i) % context.world_size())
                                       : context.world().all_reduce(Buffer(std::span(buckets[i])), ReduceOp::Sum));
        }
        int wrong = 0;
        for (std::size_t i = 0; i < works.size(); ++i) {
            wrong += works[i].seq() == i + 1 ? 0 : 1;
            works[i].wait();
            const auto expected = static_cast<std::int64_t>(i) * (i % 3 == 0 ? 1 : ranks);
            wrong += buckets[i] == std::vector<std::int64_t>(500, expected) ? 0 : 1;
            // What came before is done as well.
            wrong += i > 0 && !works[i - 1].done() ? 1 : 0;
        }
        return wrong;
    });
    for (const int wrong : results) CHECK(wrong == 0);
}

TEST_CASE("an operation gives what those before it have left in its buffer, whatever its size", "[native][unit]") {
    const std::size_t count = GENERATE(1, 100, 10'000);
    std::promise<void> queued;  // on rank 0, before rank 1 calls anything
    const auto results = run_ranks({.ranks_per_node = {2}}, [&](Context& context) {
        ProcessGroup& world = context.world();
        if (world.rank() == 1) queued.get_future().wait();
        std::vector<float> values(count, world.rank() == 1 ? 5.0f : 1.0f);
        Work first = world.broadcast(values, 1);
        Work second = world.all_reduce(values, ReduceOp::Sum);
        if (world.rank() == 0) queued.set_value();
        second.wait();
        first.wait();
        return values;
    });
    for (const auto& values : results) CHECK(values == std::vector<float>(count, 10.0f));
}

TEST_CASE("a rank that writes into the input of a small operation in flight gets what its peers get",
          "[native][unit]") {
    std::promise<void> written;
    const auto sums = run_ranks({.ranks_per_node = {2}}, [&](Context& context) {
        float in = 1;
        float out = 0;
        if (context.rank() == 1) written.get_future().wait();
        Work work = context.world().all_reduce(in, out, ReduceOp::Sum);
        if (context.rank() == 0) {
            in = 100;  // what peers get of it has been announced
            written.set_value();
        }
        work.wait();
        return out;
    });
    CHECK(sums == std::vector<float>{2, 2});
}

TEST_CASE("a dropped handle changes nothing", "[native][unit]") {
    const auto results = run_ranks({.ranks_per_node = {3}}, [](Context& context) {
        std::vector<int> values(10, 1);
        (void)context.world().all_reduce(values, ReduceOp::Sum);
        context.world().barrier().wait();  // runs after it, so it is done
        return values;
    });
    for (const auto& values : results) CHECK(values == std::vector<int>(10, 3));
}

TEST_CASE("callbacks run once, before or after the end of the work", "[native][unit]") {
    const auto results = run_ranks({.ranks_per_node = {2}}, [](Context& context) {
        std::atomic<int> calls{0};
        const auto count = [&](const std::exception_ptr& error) { calls += error ? 100 : 1; };
        Work work = context.world().barrier();
        work.then(count);
        work.wait();
        work.then(count);                  // at once
        context.world().barrier().wait();  // the progress thread is past the first callback
        return calls.load();
    });
    CHECK(results == std::vector<int>{2, 2});
}

TEST_CASE("any thread may wait, and several at a time", "[native][unit]") {
    const auto results = run_ranks({.ranks_per_node = {2}}, [](Context& context) {
        std::vector<float> values(1000, 1);
        Work work = context.world().all_reduce(values, ReduceOp::Sum);
        std::atomic<int> right{0};
        std::vector<std::thread> waiters;
        for (int i = 0; i < 3; ++i) {
            waiters.emplace_back([work, &values, &right]() mutable {
                work.wait();
                right += values.back() == 2 ? 1 : 0;
            });
        }
        for (auto& waiter : waiters) waiter.join();
        return right.load();
    });
    CHECK(results == std::vector<int>{3, 3});
}

TEST_CASE("groups of one world run at the same time without mixing", "[native][unit]") {
    const auto results = run_ranks({.ranks_per_node = {2, 2}}, [](Context& context) {
        const auto twin = context.world().split(0, context.rank(), "twin");
        std::vector<int> a(10'000, 1);
        std::vector<int> b(10'000, 10);
        std::vector<Work> works;
        for (int i = 0; i < 5; ++i) {
            // Half of the ranks begin with the other group: with one queue for both this would hang.
            ProcessGroup& first = context.rank() % 2 == 0 ? context.world() : *twin;
            ProcessGroup& second = context.rank() % 2 == 0 ? *twin : context.world();
            works.push_back(first.all_reduce(Buffer(std::span(context.rank() % 2 == 0 ? a : b)), ReduceOp::Sum));
            works.push_back(second.all_reduce(Buffer(std::span(context.rank() % 2 == 0 ? b : a)), ReduceOp::Sum));
        }
        for (Work& work : works) work.wait();
        return a == std::vector<int>(10'000, 1024) && b == std::vector<int>(10'000, 10240);
    });
    CHECK(results == std::vector<bool>(4, true));
}

TEST_CASE("split forms groups by color, ordered by key, across nodes", "[native][unit]") {
    const auto results = run_ranks({.ranks_per_node = {3, 3}}, [](Context& context) {
        // Rank 5 takes no part; the others by parity, in reverse order.
        const int color = context.rank() == 5 ? -1 : context.rank() % 2;
        const auto group = context.world().split(color, -context.rank(), "half");
        if (!group) return std::vector<int>{};
        int sum = context.rank();
        group->all_reduce(sum, ReduceOp::Sum).wait();
        int first = context.rank();
        group->broadcast(first, 0).wait();
        return std::vector<int>{group->size(), group->rank(), sum, first};
    });
    CHECK(results[0] == std::vector<int>{3, 2, 6, 4});
    CHECK(results[4] == std::vector<int>{3, 0, 6, 4});
    CHECK(results[1] == std::vector<int>{2, 1, 4, 3});
    CHECK(results[3] == std::vector<int>{2, 0, 4, 3});
    CHECK(results[5].empty());
}

TEST_CASE("groups of groups have names of their own", "[native][unit]") {
    const auto results = run_ranks({.ranks_per_node = {2}}, [](Context& context) {
        const auto first = context.world().split(0, 0, "reducer");
        const auto second = context.world().split(0, 0, "reducer");
        const auto inner = second->split(context.rank(), 0, "alone");
        inner->barrier().wait();
        return context.world().name() + ", " + first->name() + ", " + second->name() + ", " + inner->name();
    });
    CHECK(results[0] ==
          "world, reducer of world, reducer (split 2) of world, alone (color 0) of reducer (split 2) of world");
    CHECK(results[1] ==
          "world, reducer of world, reducer (split 2) of world, alone (color 1) of reducer (split 2) of world");
}

TEST_CASE("the parts of a split are named by their purpose, and distinguished where that is not enough", "[unit]") {
    using detail::SplitRequest;
    const auto named = [&](const SplitRequest& own, const std::vector<SplitRequest>& all, std::uint64_t split = 1) {
        return detail::name_of_part("world", split, own, all);
    };
    const SplitRequest even{0, 0, "even"}, odd{1, 0, "odd"}, nobody{-1, 0, "even"};
    CHECK(named(even, {even, odd, nobody}) == "even of world");
    CHECK(named(even, {even, {1, 0, "even"}}) == "even (color 0) of world");
    CHECK(named({0, 0, ""}, {{0, 0, ""}}) == "(split 1) of world");
    CHECK(named({0, 0, "a of b"}, {}) ==
          "a of b (split 1) of world");  // else that of a group b could be called so, too
    CHECK(named(even, {even}, 3) == "even (split 3) of world");
    CHECK(named(even, {even, {1, 0, "even"}}, 3) == "even (split 3, color 0) of world");
    const SplitRequest request{-1, 7, "two words", true};
    CHECK(detail::parse_request(to_text(request)).name == request.name);
    CHECK(detail::parse_request(to_text(request)).key == request.key);
    CHECK(detail::parse_request(to_text(request)).color == request.color);
    CHECK(detail::parse_request(to_text(request)).on_host);
    CHECK_FALSE(detail::parse_request(to_text(even)).on_host);
}
