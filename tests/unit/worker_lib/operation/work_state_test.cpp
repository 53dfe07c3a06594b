// WorkState: how long a waiter waits for a work that its backend does not end.

#include "worker_lib/src/operation/work_state.hpp"

#include <chrono>
#include <future>
#include <string>

#include "ddp/error.hpp"
#include "tests/catch.hpp"
#include "worker_lib/src/util/paused_time.hpp"

using namespace ddp;
using namespace std::chrono_literals;

namespace {

/// A work that its backend does not end, with a deadline that has passed.
class LateWork final : public detail::WorkState {
public:
    LateWork() : WorkState(1, ddprun::Clock::now() - 1s) {}
    [[nodiscard]] const detail::Participant& owner() const override { return owner_; }
    [[nodiscard]] std::string text() const override { return "#1 barrier"; }
    [[nodiscard]] ddprun::Duration grace() const override { return {}; }

private:
    const detail::Participant owner_{.group = "world", .rank = "rank 0"};
};

}  // namespace

TEST_CASE("a work that its backend does not end in time is reported by the waiter", "[unit]") {
    LateWork work;
    CHECK_THROWS_WITH(work.wait(), Catch::Contains("#1 barrier") && Catch::Contains("is not done at its deadline"));
}

TEST_CASE("a waiter waits as much longer as the process has paused since the call", "[unit]") {
    LateWork work;
    const auto now = ddprun::Clock::now();
    for (int thread = 0; thread < 2; ++thread) detail::note_paused(now - 1s, now + 19s);  // which counts once
    auto waiter = std::async(std::launch::async, [&] { work.wait(); });
    CHECK(waiter.wait_for(1500ms) == std::future_status::timeout);
    work.complete(nullptr);
    CHECK_NOTHROW(waiter.get());
}

TEST_CASE("what several threads note of a pause counts once", "[unit]") {
    const auto before = detail::paused_time();
    const auto begin = ddprun::Clock::now() + 1h;  // after all that other tests note
    detail::note_paused(begin, begin + 4s);
    detail::note_paused(begin + 1s, begin + 3s);
    detail::note_paused(begin + 2s, begin + 5s);
    CHECK(detail::paused_time() - before == 5s);
}
