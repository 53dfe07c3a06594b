#include "worker_lib/check/table.hpp"

#include <sstream>

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/check/made_up_cluster.hpp"

using namespace ddp::check;
using Catch::Contains;

namespace {

/// Returns the line of `text` that begins with `start` after blanks; empty: there is none.
std::string line_of(const std::string& text, const std::string& start) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
        if (line.substr(std::min(line.size(), line.find_first_not_of(' '))).starts_with(start)) return line;
    return "";
}

}  // namespace

TEST_CASE("nodes that are equal share a row, with the range of what varies", "[check][unit]") {
    Cluster cluster = made_up_cluster(64);
    cluster.nodes[6].gpus.pop_back();
    cluster.nodes[6].gpus[0].ecc_uncorrected = 1;
    cluster.nodes[6].kernel = "5.15.0";
    cluster.links = {{0, 1, 9}, {2, 6, 1.25}};
    cluster.rounds = 16;
    cluster.complete_rounds = 63;
    const std::string table = table_of(cluster, {});
    INFO(table);
    std::istringstream lines(table);
    for (std::string line; std::getline(lines, line);) CHECK(line.size() <= kMaxColumns);
    CHECK_THAT(table, Catch::StartsWith("64 nodes, 512 ranks, ddprun 0.1.0\n"));
    CHECK_THAT(line_of(table, "n[1-6,8-64]"),
               Contains("6.1.0-18-amd64  192   0.1") && Contains("1.94 TiB to 2.00 TiB"));
    CHECK_THAT(line_of(table, "n7 "), Contains("5.15.0"));
    CHECK_THAT(line_of(table.substr(table.find("Network")), "n[1-64]"),
               Contains("eth0 100 Gbit/s ipv4 MTU 9000") && Contains("10 to 10.6"));
    CHECK_THAT(table, Contains("n7           7 x NVIDIA H200 140 GiB") &&
                          Contains("pairs of nodes: 2 (16 of 63 rounds") &&
                          Contains("the slowest is n3 - n7, 1.25 GB/s each way") && Contains("all sums are right"));
}

TEST_CASE("a line names how many bandwidths were compared, unless all were", "[check][unit]") {
    Cluster cluster = made_up_cluster(5);
    cluster.links = {{0, 1, 9}};
    CHECK(line_of(table_of(cluster, {}), "bandwidths").empty());
    cluster.nodes[0].boot_id = cluster.nodes[1].boot_id;
    CHECK(line_of(table_of(cluster, {}), "bandwidths") ==
          "bandwidths of 3 nodes were compared: the other nodes share machines");
    cluster.nodes[2].boot_id = cluster.nodes[1].boot_id;
    CHECK(line_of(table_of(cluster, {}), "bandwidths") ==
          "bandwidths were not compared: fewer than 3 nodes have a machine of their own");
}

TEST_CASE("GPUs that could not be chosen have a line below their table", "[check][unit]") {
    Cluster cluster = made_up_cluster(3);
    cluster.nodes[1].gpu_note = cluster.nodes[2].gpu_note = "all were checked";
    CHECK(line_of(table_of(cluster, {}), "n[2-3]: ") == "  n[2-3]: all were checked");
}

TEST_CASE("a node with a finding has a row of its own in that table, nodes with the same finding share one",
          "[check][unit]") {
    Cluster cluster = made_up_cluster(8);
    cluster.nodes[6].gbytes_per_s = 0.1;
    const Finding slow{{"n7"}, "bandwidth", "0.1 GB/s", "", "Check it.", "network"};
    const Finding limit{{"n1", "n2", "n3"}, "/dev/shm", "1 B", "", "Raise it.", "limits"};
    const std::string table = table_of(cluster, {slow, limit});
    INFO(table);
    const std::string network = table.substr(table.find("Network"));
    CHECK_THAT(line_of(network, "n7"), Contains(" 0.1"));
    CHECK_THAT(line_of(network, "n[1-6,8]"), Contains(" 10 to 10.1"));
    CHECK_FALSE(line_of(table.substr(table.find("Limits")), "n[1-3]").empty());
    CHECK_FALSE(line_of(table, "n[1-8]").empty());  // of the hosts, about which there is no finding
}

TEST_CASE("long facts are cut to the width of the table", "[check][unit]") {
    Cluster cluster = made_up_cluster(3);
    for (int i = 0; i < 20; ++i)
        cluster.nodes[1].interfaces.push_back(
            {.name = fmt::format("veth{}", i), .family = "ipv4", .speed_mbit = {}, .mtu = 1500});
    cluster.nodes[0].name = std::string(90, 'n');
    cluster.nodes[2].kernel = std::string(200, 'k');
    std::istringstream lines(table_of(cluster, {}));
    for (std::string line; std::getline(lines, line);) {
        CAPTURE(line);
        CHECK(line.size() <= kMaxColumns + 8);  // marks of cuts have three bytes, and one column
    }
}

TEST_CASE("without GPUs one line states that, and why", "[check][unit]") {
    Cluster cluster = made_up_cluster(2);
    for (Node& node : cluster.nodes) {
        node.gpus.clear();
        node.driver = node.cuda = node.nccl = std::nullopt;
        node.gpu_note = "no NVIDIA driver: libnvidia-ml.so.1 is absent";
    }
    CHECK_THAT(table_of(cluster, {}),
               Contains("\n  no GPUs on any node (no NVIDIA driver: libnvidia-ml.so.1 is absent); NCCL: none\n"));
}

TEST_CASE("the verdict counts nodes or findings", "[check][unit]") {
    CHECK(verdict_of(made_up_cluster(1), {}) == "\nnothing was found on this node\n");
    CHECK(verdict_of(made_up_cluster(64), {}) == "\nall 64 nodes agree\n");
    const Finding finding{{"n7"}, "NCCL", "2.18.3", "63 nodes have 2.26.2", "Install one."};
    CHECK(verdict_of(made_up_cluster(64), {finding}) ==
          "\n1 finding:\n  n7: NCCL: 2.18.3; 63 nodes have 2.26.2. Install one.\n");
}
