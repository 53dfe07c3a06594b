#include "launcher/final_report.hpp"

#include <unistd.h>

#include "tests/catch.hpp"

using namespace ddprun::launcher;
namespace json = boost::json;

namespace {

std::string record(const json::object& object) { return json::serialize(object) + '\0'; }

}  // namespace

TEST_CASE("the last text of the nodes is printed, whatever follows it", "[launcher][unit]") {
    CHECK(nodes_report("").text.empty());
    CHECK(nodes_report("cut off").text.empty());
    const std::string one = record({{"text", "one\n"}});
    CHECK(nodes_report(one).text == "one\n");
    CHECK(nodes_report(one + record({{"text", "two\n"}})).text == "two\n");
    CHECK(nodes_report(one + "{\"text\":\"cut o").text == "one\n");
    CHECK(nodes_report(one + record({{"text", ""}})).text == "one\n");
    for (const std::string malformed : {"{", "7", "{\"text\":1}", "{\"text\":\"x\",\"report\":3}"})
        CHECK(nodes_report(malformed + '\0').report.empty());
}

TEST_CASE("the report with the culprit's error file is preferred to later ones without it", "[launcher][unit]") {
    const std::string plain = record({{"text", ""}, {"report", {{"host", "n1"}, {"error_file", nullptr}}}});
    const std::string culprit = record({{"text", ""}, {"report", {{"host", "n2"}, {"error_file", {{"x", 1}}}}}});
    CHECK(nodes_report(plain).report.at("host") == "n1");
    CHECK(nodes_report(plain + culprit).report.at("host") == "n2");
    CHECK(nodes_report(culprit + plain).report.at("host") == "n2");
}

TEST_CASE("a record that is appended to the descriptor is read as the final report", "[launcher][unit]") {
    const FinalReport report;
    CHECK(report.read().text.empty());
    const std::string text = record({{"text", "lost"}}) + record({{"text", "won"}});
    REQUIRE(::write(report.fd(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    CHECK(report.read().text == "won");
}
