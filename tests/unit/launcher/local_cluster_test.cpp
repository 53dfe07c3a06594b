// What an emulated cluster says at its end, and how its nodes learn who they are.

#include "launcher/local_cluster.hpp"

#include <signal.h>

#include "launcher/option_values.hpp"
#include "tests/catch.hpp"

using namespace ddprun;
using namespace ddprun::launcher;

namespace {

ExitStatus exited(int code) { return {ExitStatus::Kind::kExited, code}; }
ExitStatus killed(int signal) { return {ExitStatus::Kind::kSignaled, signal}; }

}  // namespace

TEST_CASE("the last node that ended by itself speaks for the job", "[launcher][unit]") {
    CHECK(cluster_exit_code({exited(0), exited(0)}) == 0);
    CHECK(cluster_exit_code({exited(3), exited(3)}) == 3);
    CHECK(cluster_exit_code({killed(SIGKILL), exited(0), exited(0)}) == 0);  // a whole node was killed
    CHECK(cluster_exit_code({exited(137), exited(0)}) == 0);                 // an agent was; its guard says so
    CHECK(cluster_exit_code({exited(0), killed(SIGKILL)}) == 0);
    CHECK(cluster_exit_code({killed(SIGKILL), exited(69)}) == 69);  // and too few were left
    CHECK(cluster_exit_code({killed(SIGKILL), killed(SIGTERM)}) == 143);
}

TEST_CASE("an emulated node is told its index and endpoint in one word", "[launcher][unit]") {
    const LocalNode node{3, {"127.0.0.1", 40001}};
    CHECK(to_string(node) == "3@127.0.0.1:40001");
    CHECK(parse_local_node(to_string(node))->index == 3);
    CHECK(parse_local_node(to_string(node))->endpoint == node.endpoint);
    for (const char* text : {"", "3", "@n1:1", "x@n1:1", "3@"}) CHECK_FALSE(parse_local_node(text).has_value());
    CHECK(parse_local_node(to_string(node))->last_words_fd == -1);
    CHECK(to_string(LocalNode{3, {"127.0.0.1", 40001}, 7}) == "3,7@127.0.0.1:40001");
    CHECK(parse_local_node("3,7@127.0.0.1:40001")->last_words_fd == 7);
    for (const char* text : {"3,@n1:1", "3,x@n1:1", ",7@n1:1"}) CHECK_FALSE(parse_local_node(text).has_value());
    CHECK(local_node_name(0) == "node0");
}

TEST_CASE("of what the nodes leave, the last whole text is printed", "[launcher][unit]") {
    using namespace std::string_literals;
    CHECK(last_words_of("").empty());
    CHECK(last_words_of("cut off").empty());
    CHECK(last_words_of("one\n\0"s) == "one\n");
    CHECK(last_words_of("one\n\0two\n\0"s) == "two\n");
    CHECK(last_words_of("one\n\0cut off"s) == "one\n");
}
