#include "common/text/words.hpp"

#include <vector>

#include "tests/catch.hpp"

TEST_CASE("lower case changes ASCII letters and nothing else", "[common][unit]") {
    CHECK(ddprun::lower_case("API_Key-9Z") == "api_key-9z");
    CHECK(ddprun::lower_case("\xc3\x84 [") == "\xc3\x84 [");
    CHECK(ddprun::lower_case("").empty());
}

TEST_CASE("a sentence ends once", "[common][unit]") {
    CHECK(ddprun::sentence("it failed") == "it failed.");
    CHECK(ddprun::sentence("it failed.") == "it failed.");
    CHECK(ddprun::sentence("did it start?") == "did it start?");
}

TEST_CASE("a node whose name begins with the word is named once", "[common][unit]") {
    CHECK(ddprun::name_node("n2") == "node n2");
    CHECK(ddprun::name_node("node2") == "node2");
    CHECK(ddprun::name_node("Node-a.example.org") == "Node-a.example.org");
    CHECK(ddprun::name_node("") == "node ");
}

TEST_CASE("a mistyped word gets a suggestion, a foreign one none", "[common][unit]") {
    const std::vector<std::string> known{"--port", "--token"};
    CHECK(ddprun::did_you_mean("--prot", known) == " Did you mean --port?");
    CHECK(ddprun::did_you_mean("--po", known) == " Did you mean --port?");
    CHECK(ddprun::did_you_mean("--verbose", known).empty());
    const std::vector<std::string> options{"--grep", "--help"};
    CHECK(ddprun::did_you_mean("--hlep", options) == " Did you mean --help?");  // neighbours swapped: one error
    CHECK(ddprun::did_you_mean("--hepl", options, 1) == " Did you mean --help?");
}
