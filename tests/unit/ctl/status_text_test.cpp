// The text of ddpctl status.
#include "ctl/status_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "tests/catch.hpp"

using namespace ddprun;
using namespace ddprun::protocol;
using namespace std::chrono_literals;
using Catch::Contains;

namespace {

/// A job with `nodes` nodes of 8 workers that run.
Status running(int nodes) {
    Status status{.run_id = "mnist", .command = "train --lr 1", .generation = Generation{2}, .state = "running"};
    for (int i = 0; i < nodes; ++i)
        status.nodes.push_back({fmt::format("n{}", i), NodeRank{i}, 8 * i, 8, "running", true});
    return status;
}

std::ptrdiff_t lines_in(const std::string& text) { return std::ranges::count(text, '\n'); }

}  // namespace

TEST_CASE("the status has aligned columns, and what others wrote cannot steer the terminal", "[ctl]") {
    Status status = running(2);
    status.run_id = "mnist\x1b[2J";
    status.nodes.push_back({.host = "long-name#2", .slots = 8, .state = "set aside: a\nb"});
    status.decisions = {{63'000ms, "node n1 joined"}, {40ms, "node long-name#2 is drained\x07"}};
    CHECK(ctl::status_text(status, {}) ==
          "job 'mnist\\x1b[2J' (train --lr 1), generation 2\n"
          "running\n"
          "  node  host         ranks  state\n"
          "  0     n0           0-7    running\n"
          "  1     n1           8-15   running\n"
          "  -     long-name#2  -      set aside: a\\x0ab\n"
          "decisions, the newest last:\n"
          "    63.0 s ago  node n1 joined\n"
          "     40 ms ago  node long-name#2 is drained\\x07\n");
    CHECK(ctl::status_text({.run_id = "run", .state = "waiting: no node has joined yet"}, {}) ==
          "job 'run'\nwaiting: no node has joined yet\n");
}

TEST_CASE("of a large job the status leaves out nodes that are fine, and no others", "[ctl]") {
    Status status = running(500);
    status.nodes[400].state = "lost, last heard 9.0 s ago";
    status.nodes[400].fine = false;
    const std::string text = ctl::status_text(status, {});
    CHECK(lines_in(text) == 2 + 1 + 32 + 1);
    CHECK_THAT(text, Contains("  0     n0    0-7        running\n") &&
                         Contains("  n400  3200-3207  lost, last heard") &&
                         Contains("\n  and 468 more nodes that need no attention (--all)\n"));
    ctl::StatusOptions all;
    all.all = true;
    CHECK(lines_in(ctl::status_text(status, all)) == 2 + 1 + 500);
    for (NodeStatus& node : status.nodes) node.fine = false;
    CHECK(lines_in(ctl::status_text(status, {})) == 2 + 1 + 500);
    CHECK(lines_in(ctl::status_text(running(32), {})) == 2 + 1 + 32);
}

TEST_CASE("the status shows as many of the newest decisions as wanted", "[ctl]") {
    Status status = running(1);
    for (int i = 0; i < 200; ++i) status.decisions.push_back({1s, fmt::format("decision {}", i)});
    ctl::StatusOptions options;
    CHECK_THAT(ctl::status_text(status, options), Contains("decision 180\n") && !Contains("decision 179\n"));
    options.decisions = 200;
    CHECK_THAT(ctl::status_text(status, options), Contains("decision 0\n"));
    options.decisions = 0;
    CHECK_THAT(ctl::status_text(status, options), !Contains("decision"));
}
