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
    CHECK(nodes_report(record({{"goodput", "goodput: 94 %"}}) + record({{"goodput", ""}})).goodput == "goodput: 94 %");
    for (const std::string malformed : {"{", "7", "{\"text\":1}", "{\"text\":\"x\",\"report\":3}"})
        CHECK(nodes_report(malformed + '\0').report.empty());
}

TEST_CASE("each node that has come to its end has an exit code in the final report", "[launcher][unit]") {
    const std::string records = record({{"text", ""}, {"node", "node1"}, {"exit_code", 3}}) +
                                record({{"text", ""}, {"node", 7}, {"exit_code", 3}}) +
                                record({{"text", ""}, {"node", "node0"}, {"exit_code", 0}}) + "{\"node\":\"node2\"";
    CHECK(nodes_report(records).exit_codes == std::map<std::string, int>{{"node0", 0}, {"node1", 3}});
}

TEST_CASE("each node that had workers has their generation, and when their stop began, in the final report",
          "[launcher][unit]") {
    const std::string records = record({{"node", "node1"}, {"generation", 2}, {"stop_began_at", 7'000'000'000'000}}) +
                                record({{"node", "node3"}, {"generation", "x"}, {"stop_began_at", "x"}}) +
                                record({{"node", "node4"}, {"exit_code", 0}});
    CHECK(nodes_report(records).generations == std::map<std::string, int>{{"node1", 2}});
    CHECK(nodes_report(records).stops_began_at == std::map<std::string, std::int64_t>{{"node1", 7'000'000'000'000}});
}

TEST_CASE("a report with an error file of 32 levels is read", "[launcher][unit]") {
    const json::value deep = json::parse(std::string(32, '[') + std::string(32, ']'));
    const std::string records = record({{"text", "lost"}, {"report", {{"error_file", deep}}}});
    CHECK(nodes_report(records).text == "lost");
    CHECK(nodes_report(records).report.at("error_file") == deep);
}

TEST_CASE("the report of the culprit's node is preferred to later ones", "[launcher][unit]") {
    const auto report_of = [](const char* host) {
        return record({{"text", ""}, {"report", {{"host", host}, {"culprit", {{"host", "n2"}}}}}});
    };
    CHECK(nodes_report(report_of("n1")).report.at("host") == "n1");
    CHECK(nodes_report(report_of("n1") + report_of("n2")).report.at("host") == "n2");
    CHECK(nodes_report(report_of("n2") + report_of("n1")).report.at("host") == "n2");
    CHECK(nodes_report(report_of("n1") + report_of("n3")).report.at("host") == "n3");
    const std::string without = record({{"text", ""}, {"report", {{"host", "n1"}, {"culprit", nullptr}}}});
    CHECK(nodes_report(without + report_of("n1")).report.at("host") == "n1");
}

TEST_CASE("a record that is appended to the descriptor is read as the final report", "[launcher][unit]") {
    const FinalReport report;
    CHECK(report.read().text.empty());
    const std::string text = record({{"text", "lost"}}) + record({{"text", "won"}});
    REQUIRE(::write(report.fd(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    CHECK(report.read().text == "won");
}
