#include "common/clock.hpp"

#include "tests/catch.hpp"

TEST_CASE("last_tick() agrees with the clock", "[common]") {
    constexpr auto kFarOff = std::chrono::milliseconds(500);  // for a machine that is paused meanwhile
    CHECK(ddprun::tick_length() > ddprun::Duration::zero());
    CHECK(ddprun::tick_length() <= std::chrono::milliseconds(10));
    for (int i = 0; i < 100; ++i) {
        const auto before = ddprun::Clock::now();
        const auto tick = ddprun::last_tick();
        CHECK(tick >= before - kFarOff);
        CHECK(tick <= ddprun::Clock::now());
    }
}
