// Several threads that call one group.

#include <atomic>
#include <chrono>
#include <functional>
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
using Catch::StartsWith;

namespace {

constexpr std::chrono::minutes kNeverReached{5};  // no test waits for a deadline

/// The error of one all-reduce of `values` that this thread waits for; empty: it went well.
template <class Values>
std::string error_of_sum(ProcessGroup& group, Values&& values) {
    try {
        group.all_reduce(values, ReduceOp::Sum).wait();
    } catch (const Error& error) {
        return std::string(to_string(error.code())) + ": " + error.what();
    }
    return {};
}

}  // namespace

TEST_CASE("a second thread during an operation aborts the group, and may go on after it", "[group][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{2}, {1, 1}}));
    const bool in_between = GENERATE(true, false);
    std::latch refused(1);
    const auto errors = run_ranks({.ranks_per_node = shape, .timeout = kNeverReached}, [&](Context& context) {
        std::vector<float> large(300'000, 1);
        std::string seen;
        Work first;
        if (context.rank() == 0 || !in_between) first = context.world().all_reduce(large, ReduceOp::Sum);
        if (!in_between) first.wait();
        if (context.rank() == 0 || !in_between) std::thread([&] { seen = error_of_sum(context.world(), 1); }).join();
        if (!in_between) return seen;
        if (context.rank() == 0) refused.count_down();
        refused.wait();
        // Rank 1 makes the call of rank 0 that was aborted: another one may be a mismatch before the abort arrives.
        const bool is_first = context.rank() == 1;
        return seen + " | " + (is_first ? error_of_sum(context.world(), large) : error_of_sum(context.world(), 1));
    });
    if (!in_between) {
        CHECK(errors == std::vector<std::string>{"", ""});
        return;
    }
    CHECK_THAT(errors[0], StartsWith("InvalidArgument: group 'world': rank 0 "));
    for (const std::string& error : errors) {
        CHECK_THAT(error, Contains("#2 all_reduce sum i32[1]: thread ") &&
                              Contains(" calls it while operation #1 of thread ") && Contains("ProcessGroup::split") &&
                              Contains(" | Aborted: "));
    }
}

TEST_CASE("a call during a call of another thread aborts the group", "[group][unit]") {
    const auto errors = run_ranks({.ranks_per_node = {1}, .timeout = kNeverReached}, [&](Context& context) {
        std::vector<std::string> seen(2);
        std::atomic<bool> found{false};
        const auto use = [&](std::string& error) {  // an operation of one rank ends inside the call
            while (error.empty() && !found) error = error_of_sum(context.world(), 1);
            found = true;
        };
        std::thread other(use, std::ref(seen[1]));
        use(seen[0]);
        other.join();
        return seen[0] + seen[1];
    });
    CHECK_THAT(errors.front(), Contains("calls it while a call of thread ") || Contains("calls it while operation #"));
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
