#include "common/text/pattern.hpp"

#include <string>

#include "tests/catch.hpp"

using namespace ddprun;

TEST_CASE("a pattern is looked for anywhere in a text", "[common]") {
    const Pattern pattern = Pattern::parse("loss=[0-9.]+$").value();
    CHECK(pattern.matches("step 3 loss=0.25") == true);
    CHECK(pattern.matches("loss=x") == false);
    CHECK(pattern.matches("") == false);
    CHECK(Pattern::parse("(?i)ERROR").value().matches("an error") == true);
}

TEST_CASE("a text that is no pattern is refused with the place", "[common]") {
    const auto refused = Pattern::parse("ab)");
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().code == Errc::kUsage);
    CHECK_THAT(refused.error().message,
               Catch::StartsWith("not a regular expression: ") && Catch::Contains(" at character 3. A backslash"));
}

TEST_CASE("a match that would take too long is given up", "[common]") {
    CHECK(Pattern::parse("(a|aa)+$").value().matches(std::string(60'000, 'a') + "b") == std::nullopt);
}
