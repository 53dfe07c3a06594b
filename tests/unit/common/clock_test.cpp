#include "common/clock.hpp"

#include "tests/catch.hpp"

TEST_CASE("the quick clock shows the same time as the other", "[common]") {
    constexpr auto kFarOff = std::chrono::milliseconds(500);  // for a machine that stands still meanwhile
    for (int i = 0; i < 100; ++i) {
        const auto before = ddprun::Clock::now();
        const auto roughly = ddprun::roughly_now();
        CHECK(roughly >= before - kFarOff);
        CHECK(roughly <= ddprun::Clock::now() + kFarOff);
    }
}
