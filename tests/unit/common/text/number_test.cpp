#include "common/text/number.hpp"

#include <cstdint>

#include "tests/catch.hpp"

using namespace ddprun;
using namespace std::chrono_literals;

TEST_CASE("a text is a number only if all of it is, and only if the number fits", "[common][unit]") {
    CHECK(parse_number<int>("42") == 42);
    CHECK(parse_number<int>("-1") == -1);
    CHECK(parse_number<double>("0.5") == 0.5);
    for (const char* text : {"", " 1", "1 ", "1x", "x", "+1", "0x10"}) {
        CAPTURE(text);
        CHECK_FALSE(parse_number<int>(text).has_value());
    }
    CHECK(parse_number<std::uint16_t>("65535") == 65535);
    CHECK_FALSE(parse_number<std::uint16_t>("65536").has_value());
    CHECK_FALSE(parse_number<std::uint16_t>("-1").has_value());
}

TEST_CASE("a counted noun is singular after 1 alone", "[common][unit]") {
    CHECK(counted(0, "node") == "0 nodes");
    CHECK(counted(1, "node") == "1 node");
    CHECK(counted(std::size_t{2}, "node") == "2 nodes");
    CHECK(counted(1, "directory", "directories") == "1 directory");
    CHECK(counted(3, "directory", "directories") == "3 directories");
}

TEST_CASE("a word agrees with its number", "[common][unit]") {
    CHECK(inflect(1, "is", "are") == "is");
    CHECK(inflect(0, "is", "are") == "are");
    CHECK(inflect(std::size_t{2}, "has", "have") == "have");
}

TEST_CASE("a measured time is rounded to what matters", "[common][unit]") {
    CHECK(duration_text(35ms) == "35 ms");
    CHECK(duration_text(4210ms) == "4.2 s");
    CHECK(duration_text(180min) == "180 min");
    CHECK(duration_text(600min) == "10 h");
    CHECK(rounded_seconds_text(35ms) == "0.0 s");
    CHECK(rounded_seconds_text(900s) == "900.0 s");
}

TEST_CASE("a configured time is shown in seconds without superfluous digits", "[common][unit]") {
    CHECK(seconds_number(500ms) == "0.5");
    CHECK(seconds_number(10min) == "600");
    CHECK(seconds_number(10'000'000s) == "10000000");
    CHECK(seconds_text(1ms) == "0.001 s");
    CHECK(seconds_text(0s) == "0 s");
}
