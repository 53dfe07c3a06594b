#include "rendezvous/coordinator/node_table.hpp"

#include <fmt/format.h>

#include "tests/catch.hpp"
#include "tests/unit/rendezvous/coordinator/job.hpp"

using namespace ddprun;
using namespace ddprun::coordinator;

namespace {

Node node_of(const std::string& host) {
    Node node;
    node.join.host = host;
    return node;
}

Hosts hosts_in(const NodeTable& table, Subset subset) {
    Hosts hosts;
    for (const NodeName& name : table.of(subset)) hosts.push_back(name.host);
    return hosts;
}

}  // namespace

TEST_CASE("a subset has its nodes in natural order, and follows each change", "[coordinator]") {
    NodeTable table;
    for (const char* host : {"n10", "n2", "n1"}) table.add(host, node_of(host));
    CHECK(hosts_in(table, Subset::kEligible) == Hosts{"n1", "n2", "n10"});
    table.change("n2", [](Node& node) {
        node.busy = Generation{1};
        node.last_rank = NodeRank{0};
    });
    CHECK(hosts_in(table, Subset::kEligible) == Hosts{"n1", "n10"});
    CHECK(hosts_in(table, Subset::kNotBack) == Hosts{"n2"});
    CHECK(hosts_in(table, Subset::kBusy) == Hosts{"n2"});
    table.change("n2", [](Node& node) { node.link = Link::kLost; });
    CHECK(hosts_in(table, Subset::kBusy).empty());
    CHECK(hosts_in(table, Subset::kLostMember) == Hosts{"n2"});
    table.change_all([](Node& node) { node.set_aside = true; });
    CHECK(hosts_in(table, Subset::kSetAside) == Hosts{"n1", "n10"});
    CHECK(table.count(Subset::kPresent) == 0);
    CHECK(table.is_consistent());
    table.erase("n2");
    CHECK(hosts_in(table, Subset::kLostMember).empty());
    CHECK(table.is_consistent());
}

TEST_CASE("names and roles are those of the nodes in the table", "[coordinator]") {
    NodeTable table;
    for (const char* host : {"vm", "vm#2", "vm#3", "vm2#2"}) table.add(host, node_of(host));
    CHECK(table.is_taken("vm", "another"));
    CHECK_FALSE(table.is_taken("vm", "vm"));  // by itself
    CHECK_FALSE(table.is_taken("v", "another"));
    CHECK(table.count_numbered("vm") == 2);
    CHECK(table.has_role("default"));
    Join server = table.at("vm").join;
    server.host = "vm#4";
    server.programs = {{.role = "server"}, {.role = "server"}};
    table.set_join("vm", server);
    CHECK(table.count_numbered("vm") == 3);
    CHECK(table.has_role("server"));
    CHECK(table.is_consistent());
    table.change("vm", [](Node& node) { node.link = Link::kLost; });
    CHECK_FALSE(table.is_taken("vm#4", "another"));  // a lost node gives its name up, and keeps its role
    CHECK(table.has_role("server"));
    for (const char* id : {"vm", "vm#2", "vm#3", "vm2#2"}) table.erase(id);
    CHECK(table.count_numbered("vm") == 0);
    CHECK_FALSE(table.has_role("default"));
    CHECK(table.is_consistent());
}

TEST_CASE("a change of Node::join that bypasses the table is found", "[coordinator]") {
    NodeTable table;
    table.add("a", node_of("n1"));
    table.change("a", [](Node& node) { node.join.host = "n2"; });
    CHECK_FALSE(table.is_consistent());
}
