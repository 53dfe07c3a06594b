// WorkState: how long a waiter waits for a work that its backend does not end.

#include "worker_lib/src/operation/work_state.hpp"

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "ddp/error.hpp"
#include "tests/catch.hpp"

using namespace ddp;
using namespace std::chrono_literals;

namespace {

/// A work whose backend does nothing.
class IdleWork final : public detail::WorkState {
public:
    IdleWork() : WorkState(1, ddprun::Clock::now()) {}
    [[nodiscard]] const detail::Participant& owner() const override { return owner_; }
    [[nodiscard]] std::string text() const override { return "#1 barrier"; }
    [[nodiscard]] ddprun::Duration grace() const override { return 0s; }

private:
    const detail::Participant owner_{.group = "world", .rank = "rank 0"};
};

}  // namespace

TEST_CASE("a work that its backend does not end in time is reported by the waiter", "[unit]") {
    IdleWork work;
    CHECK_THROWS_WITH(work.wait(), Catch::Contains("#1 barrier") && Catch::Contains("is not done at its deadline"));
}

TEST_CASE("a waiter waits as much longer as a work is postponed", "[unit]") {
    IdleWork work;
    std::atomic<bool> ends{false};
    auto waiter = std::async(std::launch::async, [&] {
        work.wait();
        return ends.load();
    });
    work.postpone(60s);
    std::this_thread::sleep_for(1s);  // longer than a waiter waits for a backend to notice a pause
    ends = true;
    work.complete(nullptr);
    CHECK(waiter.get());
}
