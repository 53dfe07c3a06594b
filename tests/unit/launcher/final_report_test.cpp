#include "launcher/final_report.hpp"

#include <unistd.h>

#include "tests/catch.hpp"

using namespace ddprun::launcher;

TEST_CASE("the last whole text of the nodes is the final report", "[launcher][unit]") {
    using namespace std::string_literals;
    CHECK(last_report("").empty());
    CHECK(last_report("cut off").empty());
    CHECK(last_report("one\n\0"s) == "one\n");
    CHECK(last_report("one\n\0two\n\0"s) == "two\n");
    CHECK(last_report("one\n\0cut off"s) == "one\n");
}

TEST_CASE("a text that is appended to the descriptor is read as the final report", "[launcher][unit]") {
    const FinalReport report;
    CHECK(report.read().empty());
    const std::string text("lost\0won\0", 9);
    REQUIRE(::write(report.fd(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    CHECK(report.read() == "won");
}
