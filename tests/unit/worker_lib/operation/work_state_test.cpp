// WorkState: how long a waiter waits for a work that its backend does not end.

#include "worker_lib/src/operation/work_state.hpp"

#include <atomic>
#include <chrono>
#include <future>
#include <string>
#include <thread>

#include "ddp/error.hpp"
#include "tests/catch.hpp"

using namespace ddp;

namespace {

/// A work that its backend does not end, with a deadline that has passed.
class LateWork final : public detail::WorkState {
public:
    explicit LateWork(bool backend_lives)
        : WorkState(1, ddprun::Clock::now() - std::chrono::seconds(1)), lives_(backend_lives) {}
    [[nodiscard]] const detail::Participant& owner() const override { return owner_; }
    [[nodiscard]] std::string text() const override { return "#1 barrier"; }
    [[nodiscard]] ddprun::Duration grace() const override { return {}; }
    [[nodiscard]] std::uint64_t signs_of_life() const override { return lives_ ? ++signs_ : 0; }
    [[nodiscard]] int signs() const { return signs_; }

private:
    const bool lives_;
    const detail::Participant owner_{.group = "world", .rank = "rank 0"};
    mutable std::atomic<int> signs_{0};
};

}  // namespace

TEST_CASE("a work that a backend without signs of life does not end is reported by the waiter", "[unit]") {
    LateWork work(false);
    CHECK_THROWS_WITH(work.wait(), Catch::Contains("#1 barrier") && Catch::Contains("is not done at its deadline"));
}

TEST_CASE("a waiter waits for a backend that gives signs of life, though the deadline has passed", "[unit]") {
    LateWork work(true);
    auto waiter = std::async(std::launch::async, [&] { work.wait(); });
    while (work.signs() < 4) std::this_thread::yield();
    work.complete(nullptr);
    CHECK_NOTHROW(waiter.get());
}
