// Several threads that call one group.

#include <atomic>
#include <chrono>
#include <future>
#include <latch>
#include <thread>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"
#include "tests/unit/worker_lib/support/world_errors.hpp"

using namespace ddp;
using namespace ddp::testing;
using Catch::Contains;

namespace {

constexpr std::chrono::minutes kNeverReached{5};  // no test waits for a deadline

/// The error of one all-reduce of `value` that this thread waits for; empty: it went well.
std::string error_of_sum(ProcessGroup& group, int value) {
    try {
        group.all_reduce(value, ReduceOp::Sum).wait();
    } catch (const Error& error) {
        return std::string(to_string(error.code())) + ": " + error.what();
    }
    return {};
}

}  // namespace

TEST_CASE("a second thread is refused while an operation is in flight, and may go on after it", "[group][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{2}, {1, 1}}));
    std::latch refused(1);
    const auto errors = run_ranks({.ranks_per_node = shape, .timeout = kNeverReached}, [&](Context& context) {
        std::vector<float> large(300'000, 1);
        std::vector<std::string> seen;
        if (context.rank() == 1) refused.wait();
        Work first = context.world().all_reduce(large, ReduceOp::Sum);
        if (context.rank() == 0) {
            std::thread([&] { seen.push_back(error_of_sum(context.world(), 1)); }).join();
            refused.count_down();
        }
        first.wait();
        std::thread([&] { seen.push_back(error_of_sum(context.world(), 1)); }).join();
        return seen;
    });
    REQUIRE(errors[0].size() == 2);
    CHECK_THAT(errors[0][0],
               Contains("InvalidArgument: group 'world': rank 0 ") && Contains("#2 all_reduce sum i32[1]: thread ") &&
                   Contains(" calls it while operation #1, which thread ") && Contains("ProcessGroup::split"));
    CHECK(errors[0][1].empty());
    CHECK(errors[1] == std::vector<std::string>{""});
}

TEST_CASE("two threads that use one group at the same time get an error, or their own sums", "[group][unit]") {
    const auto outcomes = run_ranks({.ranks_per_node = {2}, .timeout = std::chrono::seconds(20)}, [](Context& context) {
        std::atomic<int> wrong{0};
        std::atomic<bool> noticed{false};
        const auto use = [&](int value) {
            for (int i = 0; i < 1'000 && !noticed; ++i) {
                int sum = value;
                try {
                    context.world().all_reduce(sum, ReduceOp::Sum, {.label = value == 1 ? "ones" : "tens"}).wait();
                } catch (const Error&) {
                    noticed = true;
                    context.world().abort("threads");
                }
                if (!noticed && sum != 2 * value) ++wrong;
            }
        };
        std::thread other(use, 10);
        use(1);
        other.join();
        return std::pair(wrong.load(), noticed.load());
    });
    for (const auto& [wrong, noticed] : outcomes) {
        CHECK(wrong == 0);
        CHECK(noticed);
    }
}

TEST_CASE("a callback may start operations on a thread of the library", "[group][unit]") {
    const auto sums = run_ranks({.ranks_per_node = {2}, .timeout = kNeverReached}, [](Context& context) {
        std::vector<float> large(300'000, 1);
        int sum = 1;
        std::promise<Work> next;
        Work first = context.world().all_reduce(large, ReduceOp::Sum);
        first.then([&](const std::exception_ptr&) { next.set_value(context.world().all_reduce(sum, ReduceOp::Sum)); });
        next.get_future().get().wait();
        context.world().barrier().wait();
        return sum;
    });
    CHECK(sums == std::vector<int>{2, 2});
}
