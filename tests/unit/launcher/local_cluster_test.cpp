// The exit code of an emulated cluster, and the option that tells each node its index.

#include "launcher/local_cluster.hpp"

#include <signal.h>

#include "launcher/options/option_values.hpp"
#include "tests/catch.hpp"

using namespace ddprun;
using namespace ddprun::launcher;

namespace {

ExitStatus exited(int code) { return {ExitStatus::Kind::kExited, code}; }
ExitStatus killed(int signal) { return {ExitStatus::Kind::kSignaled, signal}; }

}  // namespace

TEST_CASE("the exit code of the last node that exited by itself is that of the job", "[launcher][unit]") {
    CHECK(cluster_exit_code({exited(0), exited(0)}) == 0);
    CHECK(cluster_exit_code({exited(3), exited(3)}) == 3);
    CHECK(cluster_exit_code({killed(SIGKILL), exited(0), exited(0)}) == 0);  // a whole node was killed
    CHECK(cluster_exit_code({exited(137), exited(0)}) == 0);  // an agent was killed; its guard reports that
    CHECK(cluster_exit_code({exited(0), killed(SIGKILL)}) == 0);
    CHECK(cluster_exit_code({killed(SIGKILL), exited(69)}) == 69);  // and too few were left
    CHECK(cluster_exit_code({killed(SIGKILL), killed(SIGTERM)}) == 143);
}

TEST_CASE("one argument gives an emulated node its index and endpoint", "[launcher][unit]") {
    const LocalNode node{3, {"127.0.0.1", 40001}};
    CHECK(to_string(node) == "3@127.0.0.1:40001");
    CHECK(parse_local_node(to_string(node))->index == 3);
    CHECK(parse_local_node(to_string(node))->endpoint == node.endpoint);
    for (const char* text : {"", "3", "@n1:1", "x@n1:1", "3@"}) CHECK_FALSE(parse_local_node(text).has_value());
    CHECK(parse_local_node(to_string(node))->final_report_fd == -1);
    CHECK(to_string(LocalNode{3, {"127.0.0.1", 40001}, 7}) == "3,7@127.0.0.1:40001");
    CHECK(parse_local_node("3,7@127.0.0.1:40001")->final_report_fd == 7);
    CHECK(to_string(LocalNode{3, {"127.0.0.1", 40001}, -1, 8}) == "3,-1,8@127.0.0.1:40001");
    CHECK(parse_local_node("3,7,8@127.0.0.1:40001")->final_report_fd == 7);
    CHECK(parse_local_node("3,7,8@127.0.0.1:40001")->open_lines_fd == 8);
    for (const char* text : {"3,@n1:1", "3,x@n1:1", ",7@n1:1", "3,7,@n1:1", "3,7,8,9@n1:1"})
        CHECK_FALSE(parse_local_node(text).has_value());
    CHECK(local_node_name(0) == "node0");
}
