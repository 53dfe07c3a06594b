// Small operations inside a node: which thread runs them, and how they mix with large ones.

#include <algorithm>
#include <array>
#include <atomic>
#include <random>
#include <thread>

#ifdef __SSE2__
#include <xmmintrin.h>
#endif

#include "ddp/ddp.hpp"
#include "tests/catch.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"
#include "worker_lib/src/native/shm/control.hpp"

using Catch::Contains;
using ddp::Context;
using ddp::ReduceOp;
using ddp::Work;
using ddp::testing::LocalWorld;
using ddp::testing::run_ranks;
using ddp::testing::try_ranks;

namespace {

constexpr std::size_t kMany = 5 * ddp::detail::kAhead;
constexpr std::size_t kTooLarge = ddp::detail::kInlineBytes / sizeof(float) + 1;

bool eventually(const auto& condition) {
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!condition()) {
        if (std::chrono::steady_clock::now() > give_up) return false;
        std::this_thread::yield();
    }
    return true;
}

std::vector<float> random_values(std::size_t count, int seed) {
    std::mt19937 random(static_cast<unsigned>(seed));
    std::uniform_real_distribution<float> any(-1, 1);
    std::vector<float> values(count);
    std::ranges::generate(values, [&] { return any(random); });
    return values;
}

}  // namespace

TEST_CASE("more small operations in flight than can be opened ahead, waited for backwards", "[one-shot]") {
    const auto right = run_ranks({.ranks_per_node = {3}}, [](Context& context) {
        for (int round = 0; round < 20; ++round) {
            std::vector<int> values(kMany, context.rank());
            std::vector<Work> works;
            for (int& value : values) works.push_back(context.world().all_reduce(value, ReduceOp::Sum));
            for (std::size_t i = kMany; i-- > 0;) works[i].wait();
            if (values != std::vector<int>(kMany, 3)) return false;
        }
        return true;
    });
    CHECK(right == std::vector<bool>(3, true));
}

TEST_CASE("several threads of a rank may wait, each for its own operation", "[one-shot]") {
    const auto right = run_ranks({.ranks_per_node = {2}}, [](Context& context) {
        for (int round = 0; round < 20; ++round) {
            std::vector<int> values(6, 1);
            std::vector<float> large(kTooLarge, 1);
            std::vector<Work> works;
            for (int& value : values) works.push_back(context.world().all_reduce(value, ReduceOp::Sum));
            works.push_back(context.world().all_reduce(large, ReduceOp::Sum));
            std::vector<std::thread> threads;
            for (Work& work : works) threads.emplace_back([&work] { work.wait(); });
            for (std::thread& thread : threads) thread.join();
            if (values != std::vector<int>(6, 2) || large != std::vector<float>(kTooLarge, 2)) return false;
        }
        return true;
    });
    CHECK(right == std::vector<bool>(2, true));
}

TEST_CASE("a small operation ends without a wait, if its state is asked for", "[one-shot]") {
    const auto seen = run_ranks({.ranks_per_node = {2}}, [](Context& context) {
        int polled = 1;
        Work work = context.world().all_reduce(polled, ReduceOp::Sum);
        const bool done = eventually([&] { return work.done(); });
        int told = 1;
        std::atomic<bool> called{false};
        context.world().all_reduce(told, ReduceOp::Sum).then([&](std::exception_ptr) { called = true; });
        const bool was_called = eventually([&] { return called.load(); });
        int limited = 1;
        context.world().all_reduce(limited, ReduceOp::Sum).wait_host(std::chrono::seconds(20));
        return std::tuple{done, polled, was_called, told, limited};
    });
    CHECK(seen == std::vector(2, std::tuple{true, 2, true, 2, 2}));
}

#ifndef __SANITIZE_THREAD__  // which sees that the test looks at a buffer that is not its own
TEST_CASE("a small operation ends although its work is dropped", "[one-shot]") {
    const auto values = run_ranks({.ranks_per_node = {2}}, [](Context& context) {
        int value = 1;
        static_cast<void>(context.world().all_reduce(value, ReduceOp::Sum));
        eventually([&] { return std::atomic_ref(value).load() == 2; });
        return std::atomic_ref(value).load();
    });
    CHECK(values == std::vector<int>{2, 2});
}
#endif

TEST_CASE("peers complete a small operation while a rank that has called it computes", "[one-shot]") {
    std::atomic<int> finished{0};
    const auto values = run_ranks({.ranks_per_node = {3}}, [&](Context& context) {
        int value = context.rank();
        Work work = context.world().all_reduce(value, ReduceOp::Max);
        if (context.rank() == 0 && !eventually([&] { return finished == 2; })) return -1;
        work.wait();
        ++finished;
        return value;
    });
    CHECK(values == std::vector<int>(3, 2));
}

TEST_CASE("peers complete a small operation after one of its ranks has left", "[one-shot]") {
    std::vector<int> values(2, 1);  // they outlive the groups, which may finish operations that were not waited for
    const auto outcomes = try_ranks({.ranks_per_node = {2}}, [&](Context& context) {
        int& value = values[static_cast<std::size_t>(context.rank())];
        Work work = context.world().all_reduce(value, ReduceOp::Sum);
        if (context.rank() == 0) work.wait();
    });
    CHECK(outcomes[0].value);
    CHECK(values[0] == 2);
}

TEST_CASE("small and large operations in any order", "[one-shot]") {
    const auto nodes = GENERATE(std::vector<int>{1}, std::vector<int>{4}, std::vector<int>{2, 1});
    CAPTURE(nodes);
    const auto wrong = run_ranks({.ranks_per_node = nodes}, [](Context& context) {
        std::mt19937 random(7);  // the same on all ranks
        int mistakes = 0;
        for (int round = 0; round < 40; ++round) {
            const std::size_t count = 4;
            std::vector<std::vector<float>> buffers;
            std::vector<Work> works;
            for (std::size_t i = 0; i < count; ++i) {
                buffers.emplace_back(random() % 2 == 0 ? 3 : kTooLarge, static_cast<float>(context.rank() + 1));
            }
            for (auto& buffer : buffers) {
                works.push_back(context.world().all_reduce(buffer, ReduceOp::Max));
                if (random() % 3 == 0) works.back().wait();
            }
            for (Work& work : works) work.wait();
            const auto largest = static_cast<float>(context.world_size());
            for (const auto& buffer : buffers)
                mistakes += std::ranges::all_of(buffer, [&](float v) { return v == largest; }) ? 0 : 1;
        }
        return mistakes;
    });
    CHECK(wrong == std::vector<int>(wrong.size(), 0));
}

TEST_CASE("small operations give the bits of large ones", "[one-shot]") {
    const auto op = GENERATE(ReduceOp::Sum, ReduceOp::Avg, ReduceOp::Product);
    const auto same = run_ranks({.ranks_per_node = {3}}, [&](Context& context) {
        auto large = random_values(kTooLarge, context.rank());
        std::vector<float> small(large.begin(), large.begin() + 100);
        context.world().all_reduce(large, op).wait();
        context.world().all_reduce(small, op).wait();
        return std::equal(small.begin(), small.end(), large.begin());
    });
    CHECK(same == std::vector<bool>(3, true));
}

TEST_CASE("a small operation against a large one is a mismatch that names both", "[one-shot]") {
    const auto outcomes = try_ranks({.ranks_per_node = {2}}, [](Context& context) {
        std::vector<float> values(context.rank() == 0 ? 2 : kTooLarge);
        context.world().all_reduce(values, ReduceOp::Sum).wait();
    });
    for (const auto& outcome : outcomes) {
        REQUIRE(outcome.ddp_error());
        CHECK(outcome.ddp_error()->code() == ddp::ErrorCode::Mismatch);
        CHECK_THAT(outcome.text(), Contains("f32[2]") && Contains("f32[" + std::to_string(kTooLarge) + "]"));
    }
}

TEST_CASE("abort ends the wait of a thread that runs the operation itself", "[one-shot]") {
    const auto outcomes = try_ranks({.ranks_per_node = {2}, .timeout = std::chrono::minutes(5)}, [](Context& context) {
        if (context.rank() == 1) {
            std::thread([&] { context.world().abort("enough"); }).join();
            return;
        }
        int value = 1;
        context.world().all_reduce(value, ReduceOp::Sum).wait();
    });
    REQUIRE(outcomes[0].ddp_error());
    CHECK(outcomes[0].ddp_error()->code() == ddp::ErrorCode::Aborted);
    CHECK_THAT(outcomes[0].text(), Contains("enough"));
}

TEST_CASE("a wait ends at its own deadline although an operation before it has a later one", "[one-shot]") {
    const auto outcomes = try_ranks({.ranks_per_node = {2}}, [](Context& context) {
        const auto began = std::chrono::steady_clock::now();
        if (context.rank() == 1) {
            static_cast<void>(context.store().get("over", std::chrono::seconds(30)));
            return std::pair{std::string(), began - began};
        }
        std::array<int, 2> values{1, 1};  // they outlive the operations: abort() ends those before this returns
        auto& world = context.world();
        Work patient = world.all_reduce(values[0], ReduceOp::Sum, {.timeout = std::chrono::seconds(15)});
        Work hasty = world.all_reduce(values[1], ReduceOp::Sum, {.timeout = std::chrono::milliseconds(100)});
        std::string text;
        try {
            hasty.wait();
        } catch (const ddp::Error& error) {
            text = error.what();
        }
        const auto waited = std::chrono::steady_clock::now() - began;
        context.store().set("over", "1");
        world.abort("enough");
        eventually([&] { return patient.done() && hasty.done(); });
        return std::pair{text, waited};
    });
    REQUIRE(outcomes[0].value);
    const auto& [text, waited] = *outcomes[0].value;
    CHECK_THAT(text, Contains("group 'world': rank 0 (host ") &&
                         Contains("): #2 all_reduce sum i32[1] is not done at its deadline"));
    CHECK(waited < std::chrono::seconds(10));
}

TEST_CASE("the timeout of a small operation names the rank that has not arrived", "[one-shot]") {
    const auto outcomes = try_ranks({.ranks_per_node = {3}}, [](Context& context) {
        int value = 1;
        if (context.rank() == 2) {
            static_cast<void>(context.store().get("over", std::chrono::seconds(20)));
            return;
        }
        try {
            context.world().all_reduce(value, ReduceOp::Sum, {.timeout = std::chrono::milliseconds(1000)}).wait();
        } catch (...) {
            context.store().set("over", "1");
            throw;
        }
    });
    REQUIRE(outcomes[0].ddp_error());
    CHECK(outcomes[0].ddp_error()->code() == ddp::ErrorCode::Timeout);
    CHECK(outcomes[0].ddp_error()->culprits() == std::vector<int>{2});
}

TEST_CASE("the thread that adds up, and its rounding mode, change no bit", "[one-shot]") {
#ifdef __SSE2__
    const auto sums = run_ranks({.ranks_per_node = {2}}, [](Context& context) {
        std::vector<float> seen;
        for (const std::size_t count : {std::size_t{4}, kTooLarge}) {
            std::vector<float> values(count, 0x1p-149F);  // subnormal
            const unsigned int before = _mm_getcsr();
            if (context.rank() == 0) _mm_setcsr(before | 0x8040U);  // flush to zero, subnormals are zero
            context.world().all_reduce(values, ReduceOp::Sum).wait();
            const bool kept = context.rank() != 0 || (_mm_getcsr() & 0x8040U) == 0x8040U;
            _mm_setcsr(before);
            seen.push_back(kept ? values.front() : -1);
            seen.push_back(values.back());
        }
        return seen;
    });
    for (const auto& own : sums) CHECK(own == std::vector<float>(4, 0x1p-148F));
#endif
}

TEST_CASE("a callback may submit the next operation of its group", "[one-shot]") {
    const auto values = run_ranks({.ranks_per_node = {2}}, [](Context& context) {
        int first = 1;
        int second = 10;
        Work next;
        std::atomic<bool> submitted = false;
        Work work = context.world().all_reduce(first, ReduceOp::Sum);
        work.then([&](std::exception_ptr) {
            next = context.world().all_reduce(second, ReduceOp::Sum);
            submitted = true;
        });
        work.wait();
        const bool came = eventually([&] { return submitted.load(); });
        if (came) next.wait();
        return first + second;
    });
    CHECK(values == std::vector<int>(2, 22));
}

TEST_CASE("a callback may drop works of its group that are not done", "[one-shot]") {
    const auto values = run_ranks({.ranks_per_node = {2}}, [](Context& context) {
        std::vector<float> large(kTooLarge, 1);
        int small = 1;
        std::atomic<bool> dropped = false;
        Work work = context.world().all_reduce(small, ReduceOp::Sum);
        work.then([&](std::exception_ptr) {  // inside the wait below, or on the progress thread
            static_cast<void>(context.world().all_reduce(large, ReduceOp::Sum));
            static_cast<void>(context.world().all_reduce(small, ReduceOp::Sum));
            dropped = true;
        });
        work.wait();
        if (!eventually([&] { return dropped.load(); })) return std::pair(-1, 0.0F);
        context.world().barrier().wait();
        return std::pair(small, large.back());
    });
    CHECK(values == std::vector(2, std::pair(4, 2.0F)));
}
