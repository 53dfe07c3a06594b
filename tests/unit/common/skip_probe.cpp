// Cases for skip_test.cpp, which runs this program: skipped, failed, and both.
#include "tests/catch.hpp"

TEST_CASE("passes") { CHECK(true); }

TEST_CASE("is skipped") { WARN("SKIPPED: no unicorn here"); }

TEST_CASE("fails and then is skipped") {
    CHECK(false);
    WARN("SKIPPED: no unicorn here");
}

TEST_CASE("skips and then fails") {
    WARN("SKIPPED: no unicorn here");
    FAIL("a failure");
}

TEST_CASE("fails as often as the code for skipped says") {
    for (int i = 0; i < 77; ++i) CHECK(false);
}

TEST_CASE("only prints the word") { WARN("nothing was SKIPPED: all is well"); }
