// All-reduce against the slow reference, bit for bit: worlds of all shapes, all types and reductions, small and odd
// counts, buffers inside and outside the arena. Because every rank equals the reference, all ranks and all runs agree.

#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <csignal>
#include <ctime>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/support/all_reduce_cases.hpp"

using namespace ddp;
using namespace ddp::testing;

namespace {

/// Buffers in the arena up to this size may be reduced by the calling thread itself.
constexpr std::size_t kAtOnce = (64u << 10) / sizeof(float);

std::span<float> in_arena(Context& context, std::size_t count) {
    return {static_cast<float*>(context.world().arena().allocate(count * sizeof(float))), count};
}

bool all_are(std::span<const float> values, float wanted) {
    return std::ranges::all_of(values, [&](float value) { return value == wanted; });
}

/// During its lifetime stops the calling thread for a moment, again and again.
class HoldUps {
public:
    HoldUps() {
        struct sigaction action {};
        action.sa_handler = [](int) {
            const timespec moment{.tv_sec = 0, .tv_nsec = 100'000};
            ::nanosleep(&moment, nullptr);
        };
        ::sigaction(SIGUSR1, &action, &before_);
        thread_ = std::thread([this, whom = ::pthread_self()] {
            while (!over_) {
                ::pthread_kill(whom, SIGUSR1);
                std::this_thread::sleep_for(std::chrono::microseconds(150));
            }
        });
    }
    ~HoldUps() {
        over_ = true;
        thread_.join();
        ::sigaction(SIGUSR1, &before_, nullptr);
    }
    HoldUps(const HoldUps&) = delete;
    HoldUps& operator=(const HoldUps&) = delete;

private:
    struct sigaction before_ {};
    std::atomic<bool> over_{false};
    std::thread thread_;
};

}  // namespace

TEST_CASE("all types, reductions and awkward counts, in worlds of all shapes", "[native][unit]") {
    const Setting setting =
        GENERATE(from_range(settings({{1}, {2}, {3}, {4}, {8}, {1, 1}, {2, 2}, {3, 1}, {1, 3, 2}})));
    CAPTURE(setting.text());
    CHECK(run_cases(setting, all_types_and_ops(awkward_counts(setting.size(), 257))) == "");
}

TEST_CASE("counts that take several pieces", "[native][unit]") {
    const Setting setting = GENERATE(from_range(long_settings({{3}, {2, 1}, {2, 2, 2}})));
    CAPTURE(setting.text());
    // Two pieces of 4 MiB, which pass between nodes, or five of 1 MiB; exactly one of the latter; two; two.
    const std::vector<Case> cases{{DType::F64, ReduceOp::Sum, 600'001},
                                  {DType::F32, ReduceOp::Avg, 1u << 18},
                                  {DType::BF16, ReduceOp::Sum, 600'001},
                                  {DType::I8, ReduceOp::Sum, 1'100'001}};
    CHECK(run_cases(setting, cases) == "");
}

TEST_CASE("long buffers outside the arena, copied to the slots both ways", "[native][unit]") {
    const Setting setting = GENERATE(from_range(long_settings({{2}, {3}})));
    CAPTURE(setting.text());
    // The first three of about a size go one way, the other, and the first again: pieces of 512 and of 256 KiB.
    std::vector<Case> cases;
    for (const std::size_t scale : {1, 5}) {
        cases.push_back({DType::F32, ReduceOp::Sum, scale * 500'009});
        cases.push_back({DType::BF16, ReduceOp::Avg, scale * 1'000'003});
        cases.push_back({DType::F64, ReduceOp::Max, scale * 250'007});
    }
    CHECK(run_cases(setting, cases) == "");
}

TEST_CASE("sums of n floats are within n units of rounding of the exact sum", "[native][unit]") {
    const std::vector<int> shape{4, 4};
    const auto results = run_ranks({.ranks_per_node = shape}, [](Context& context) {
        std::vector<float> values(1000);
        for (std::size_t i = 0; i < values.size(); ++i)
            values[i] = 1.0F / static_cast<float>(1 + i + 1000 * static_cast<std::size_t>(context.rank()));
        context.world().all_reduce(values, ReduceOp::Sum).wait();
        return values;
    });
    double worst = 0;
    for (std::size_t i = 0; i < 1000; ++i) {
        double exact = 0;
        for (std::size_t rank = 0; rank < 8; ++rank) exact += 1.0F / static_cast<float>(1 + i + 1000 * rank);
        worst = std::max(worst, std::fabs(results[0][i] - exact) / exact);
    }
    CHECK(worst <= 8 * 0x1p-24);
}

TEST_CASE("an average is the sum times the rounded 1/P, not the sum divided by P", "[native][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{3}, {1, 1, 1}, {2, 1}}));
    const std::size_t count = GENERATE(7, 200'000);
    CAPTURE(shape, count);
    const auto fives = run_ranks({.ranks_per_node = shape}, [count](Context& context) {
        std::vector<float> singles(count, context.rank() == 1 ? 5.0f : 0.0f);
        std::vector<double> doubles(count, context.rank() == 1 ? 5.0 : 0.0);
        context.world().all_reduce(singles, ReduceOp::Avg).wait();
        context.world().all_reduce(doubles, ReduceOp::Avg).wait();
        const bool alike = std::ranges::count(singles, singles[0]) == std::ptrdiff_t(count) &&
                           std::ranges::count(doubles, doubles[0]) == std::ptrdiff_t(count);
        return alike ? std::pair(singles[0], doubles[0]) : std::pair(0.0f, 0.0);
    });
    const std::pair averages(5.0f * static_cast<float>(1.0 / 3), 5.0 * (1.0 / 3));
    CHECK(averages.first != 5.0f / 3);
    CHECK(averages.second != 5.0 / 3);
    CHECK(fives == std::vector(3, averages));
}

TEST_CASE("an average of 16 bits is rounded once: by a 1/P of 16 bits it would be another one", "[native][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{3}, {1, 1, 1}, {2, 1}}));
    CAPTURE(shape);
    using Halves = std::array<std::uint16_t, 2>;  // f16, bf16
    const auto fives = run_ranks({.ranks_per_node = shape}, [](Context& context) {
        Halves five = context.rank() == 1 ? Halves{0x4500, 0x40a0} : Halves{};
        context.world().all_reduce({&five[0], 1, DType::F16}, ReduceOp::Avg).wait();
        context.world().all_reduce({&five[1], 1, DType::BF16}, ReduceOp::Avg).wait();
        return five;
    });
    CHECK(fives == std::vector(3, Halves{0x3eab, 0x3fd5}));  // 1.66699, 1.66406; not 0x3eaa, 0x3fd6
}

TEST_CASE("an element's sum does not depend on what else is in its buffer", "[native][unit]") {
    const std::vector<int> shape{3, 2};
    const auto results = run_ranks({.ranks_per_node = shape}, [](Context& context) {
        std::vector<float> whole(100'000);
        for (std::size_t i = 0; i < whole.size(); ++i)
            whole[i] = std::sin(static_cast<float>(i * 7 + static_cast<std::size_t>(context.rank())));
        std::vector<float> parts = whole;
        context.world().all_reduce(whole, ReduceOp::Sum).wait();
        context.world().all_reduce(Buffer(std::span(parts).first(33'333)), ReduceOp::Sum).wait();
        context.world().all_reduce(Buffer(std::span(parts).subspan(33'333)), ReduceOp::Sum).wait();
        return whole == parts;
    });
    CHECK(results == std::vector<bool>(5, true));
}

TEST_CASE("a bucket may lie anywhere in the arena, at another place on every rank", "[native][unit]") {
    const auto results = run_ranks({.ranks_per_node = {4}}, [](Context& context) {
        auto* memory = static_cast<float*>(context.world().arena().allocate(5000 * sizeof(float)));
        const std::span<float> values(memory + 100 * static_cast<std::size_t>(context.rank()), 1000);
        std::fill(values.begin(), values.end(), 1.0F);
        context.world().all_reduce(values, ReduceOp::Sum).wait();
        float sum = 0;
        for (std::size_t i = 0; i < 5000; ++i) sum += memory[i];
        return sum;  // nothing outside the bucket was touched
    });
    CHECK(results == std::vector<float>(4, 4000.0F));
}

TEST_CASE("buffers that the calling thread may sum up itself, between others and in flight with them",
          "[native][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{1}, {2}, {3}}));
    const auto mistakes = run_ranks({.ranks_per_node = shape}, [](Context& context) {
        std::mt19937 calls(7);                                         // the same on all ranks
        std::mt19937 own(static_cast<unsigned>(context.rank()) + 10);  // and not
        const auto anywhere = [&](std::size_t count, std::vector<std::vector<float>>& heap) {
            return own() % 3 != 0 ? in_arena(context, count) : std::span(heap.emplace_back(count));
        };
        const auto ranks = static_cast<float>(context.world_size());
        int wrong = 0;
        for (int round = 0; round < 40; ++round) {
            std::vector<std::vector<float>> heap;
            std::vector<std::span<float>> results;
            std::vector<Work> works;
            for (int i = 0; i < 4; ++i) {
                const std::size_t count =
                    std::array<std::size_t, 4>{3, kAtOnce - 77, kAtOnce, kAtOnce + 1}[calls() % 4];
                const auto values = anywhere(count, heap);
                const auto into = own() % 2 == 0 ? values : anywhere(count, heap);
                std::ranges::fill(values, static_cast<float>(i + 1));
                works.push_back(context.world().all_reduce(values, into, ReduceOp::Sum));
                results.push_back(into);
                if (own() % 3 == 0) works.back().wait();
            }
            for (std::size_t i = works.size(); i-- > 0;) works[i].wait();
            for (std::size_t i = 0; i < works.size(); ++i)
                wrong += all_are(results[i], static_cast<float>(i + 1) * ranks) ? 0 : 1;
        }
        return wrong;
    });
    CHECK(mistakes == std::vector<int>(mistakes.size(), 0));
}

TEST_CASE("a buffer that the calling thread may sum up itself, whose peer arrives only later", "[native][unit]") {
    const bool polls = GENERATE(false, true);
    const auto right = run_ranks({.ranks_per_node = {2}}, [&](Context& context) {
        const auto values = in_arena(context, kAtOnce);
        std::ranges::fill(values, 1.0F);
        if (context.rank() == 1) static_cast<void>(context.store().get("called", std::chrono::seconds(30)));
        Work work = context.world().all_reduce(values, ReduceOp::Sum);
        if (context.rank() == 0) context.store().set("called", "1");
        while (polls && !work.done()) std::this_thread::yield();
        work.wait();
        return all_are(values, 2);
    });
    CHECK(right == std::vector<bool>(2, true));
}

TEST_CASE("a rank that is held up while its peers sum up theirs is waited for", "[native][unit]") {
    const auto wrong = run_ranks({.ranks_per_node = {2}}, [](Context& context) {
        const auto values = in_arena(context, kAtOnce);
        std::optional<HoldUps> hold_ups;
        if (context.rank() == 1) hold_ups.emplace();
        int mistakes = 0;
        for (int round = 0; round < 400; ++round) {
            std::ranges::fill(values, 1.0F);
            context.world().barrier().wait();
            context.world().all_reduce(values, ReduceOp::Sum).wait();
            mistakes += all_are(values, 2) ? 0 : 1;
        }
        return mistakes;
    });
    CHECK(wrong == std::vector<int>(2, 0));
}

TEST_CASE("operations that the calling thread has opened itself fail like others", "[native][unit]") {
    const auto why = GENERATE(ErrorCode::Timeout, ErrorCode::Mismatch, ErrorCode::Aborted);
    const auto outcomes = try_ranks({.ranks_per_node = {2}}, [&](Context& context) {
        const bool first = context.rank() == 0;
        const auto values = in_arena(context, kAtOnce);
        if (!first) static_cast<void>(context.store().get("called", std::chrono::seconds(30)));
        if (!first && why == ErrorCode::Timeout)
            return static_cast<void>(context.store().get("over", std::chrono::seconds(30)));
        if (!first && why == ErrorCode::Aborted) return context.world().abort("enough");
        const OpOptions options{.timeout = std::chrono::milliseconds(why == ErrorCode::Timeout ? 500 : 20'000)};
        Work work = context.world().all_reduce(first ? values : values.first(kAtOnce - 1), ReduceOp::Sum, options);
        if (first) context.store().set("called", "1");
        try {
            work.wait();
        } catch (...) {
            if (first) context.store().set("over", "1");
            throw;
        }
    });
    const auto error = outcomes[0].ddp_error();
    REQUIRE(error);
    INFO(error->what());
    CHECK(error->code() == why);
    if (why == ErrorCode::Timeout) CHECK(error->culprits() == std::vector<int>{1});
    if (why == ErrorCode::Mismatch) REQUIRE(outcomes[1].ddp_error());
}
