// docs/control-messages.md names every message and every member that travels.
#include <boost/json.hpp>

#include <fstream>
#include <iterator>
#include <set>

#include "rendezvous/protocol/json.hpp"
#include "tests/catch.hpp"
#include "tests/unit/rendezvous/protocol/message_generator.hpp"

using namespace ddprun;
using namespace ddprun::protocol;
namespace json = boost::json;

namespace {

/// The members whose values are enumerators.
const std::set<std::string, std::less<>> kEnumerations{"type", "outcome", "kind", "oom", "process", "process_before"};

void collect_names(const json::value& value, std::set<std::string>& names) {
    if (const json::array* array = value.if_array()) {
        for (const json::value& item : *array) collect_names(item, names);
    }
    const json::object* object = value.if_object();
    if (object == nullptr) return;
    for (const auto& [key, member] : *object) {
        names.emplace(key);
        if (kEnumerations.contains(key)) names.emplace(member.as_string());
        collect_names(member, names);
    }
}

}  // namespace

TEST_CASE("the page of control messages names every message, member and enumerator", "[coordinator]") {
    std::ifstream file(DDPRUN_CONTROL_MESSAGES_PAGE);
    const std::string page{std::istreambuf_iterator<char>(file), {}};
    REQUIRE_FALSE(page.empty());
    std::set<std::string> names;
    for (std::uint32_t seed = 0; seed < 50; ++seed) {  // so that each enumerator is drawn
        Generator generate(seed, Generator::Optional::kAll);
        for (const auto& message : generate.one_of_each<AgentMessage>())
            collect_names(json::parse(encode(message)), names);
        for (const auto& message : generate.one_of_each<DaemonMessage>())
            collect_names(json::parse(encode(message)), names);
    }
    for (const std::string name : {"join", "inspected", "failing_for_ms", "maybe", "signaled", "infrastructure",
                                   "abort_reason", "left_by_exception", "output_count", "polled", "hidden_groups"}) {
        CAPTURE(name);
        CHECK(names.contains(name));
    }
    for (const std::string& name : names) {
        CAPTURE(name);
        CHECK(page.find('`' + name + '`') != std::string::npos);
    }
    const std::string version = "`protocol` (" + std::to_string(kProtocolVersion) + ")";
    const auto of_join = page.find(version);
    REQUIRE(of_join != std::string::npos);
    CHECK(page.find(version, of_join + 1) != std::string::npos);  // of `inspect`
}
