#include "common/text/pattern.hpp"

#include <chrono>
#include <string>

#include "common/clock.hpp"
#include "tests/catch.hpp"

using namespace ddprun;

TEST_CASE("a pattern is looked for anywhere in a text", "[common]") {
    const Pattern pattern = Pattern::parse("loss=[0-9.]+$").value();
    CHECK(pattern.matches("step 3 loss=0.25") == true);
    CHECK(pattern.matches("loss=x") == false);
    CHECK(pattern.matches("") == false);
    CHECK(Pattern::parse("(?i)ERROR").value().matches("an error") == true);
}

TEST_CASE("a text that is no pattern is refused with its wrong part", "[common]") {
    const auto refused = Pattern::parse("ab)");
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().code == Errc::kUsage);
    CHECK_THAT(refused.error().message, Catch::StartsWith("not a regular expression: unexpected ): ab). A backslash"));
}

TEST_CASE("no pattern keeps the agent from its heartbeats", "[common]") {
    const std::string words = "word " + std::string(60'000, 'a') + "b";
    const std::string expression =
        GENERATE(as<std::string>(), "(a|aa)+$", R"((\w+\s?)*: (error|warning)s? [0-9]+$)", "(a?){190}(a{190}|b)c");
    CAPTURE(expression);
    const auto pattern = Pattern::parse(expression);
    REQUIRE(pattern.has_value());
    const TimePoint start = Clock::now();
    CHECK_FALSE(pattern->matches(words));
    CHECK(Clock::now() - start < std::chrono::seconds(1));
}

TEST_CASE("a pattern whose match takes too many steps is refused", "[common]") {
    const auto refused = Pattern::parse("(a?){900}a{900}");
    REQUIRE_FALSE(refused.has_value());
    CHECK_THAT(refused.error().message, Catch::StartsWith("takes too many steps to match. "));
}
