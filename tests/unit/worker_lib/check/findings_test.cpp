// Made-up clusters with one odd node, and the line that names it.

#include "worker_lib/check/findings.hpp"

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/check/made_up_cluster.hpp"
#include "worker_lib/check/table.hpp"

using namespace ddp::check;
using Lines = std::vector<std::string>;

namespace {

/// Returns the lines about 64 nodes after `spoil` has changed them.
template <typename Spoil>
Lines lines_after(Spoil spoil, int nodes = 64) {
    Cluster cluster = made_up_cluster(nodes);
    spoil(cluster);
    Lines lines;
    for (const Finding& finding : find_problems(cluster)) lines.push_back(finding_line(finding));
    return lines;
}

Node& n7(Cluster& cluster) { return cluster.nodes[6]; }

}  // namespace

TEST_CASE("nodes that agree have no findings, with and without GPUs, one or many", "[check][unit]") {
    for (const int nodes : {1, 2, 3, 64, 1000}) CHECK(lines_after([](Cluster&) {}, nodes).empty());
    CHECK(lines_after([](Cluster& cluster) {
              for (Node& node : cluster.nodes) {
                  node.gpus.clear();
                  node.rdma_ports.clear();
                  node.driver = node.cuda = node.nccl = std::nullopt;
                  node.gpu_note = "no NVIDIA driver";
                  node.clock.reset();
                  node.gbytes_per_s.reset();
              }
          }).empty());
    CHECK(lines_after([](Cluster& cluster) {  // what is only shown
              n7(cluster).kernel = "5.15";
              n7(cluster).cpus = 8;
              n7(cluster).load = 99;
              n7(cluster).memory_bytes = 1 << 30;
              n7(cluster).limits.core_bytes = {};
              n7(cluster).limits.processes = 100;
          })
              .empty());
}

TEST_CASE("one odd node of 64 is named, with its value, that of the others, and what to do", "[check][unit]") {
    CHECK(
        lines_after([](Cluster& cluster) { n7(cluster).driver = "535.54.03"; }) ==
        Lines{"n7: NVIDIA driver: 535.54.03 (CUDA 12.4); 63 nodes have 550.54.15 (CUDA 12.4). Install the same driver "
              "on all nodes."});
    CHECK(
        lines_after([](Cluster& cluster) { n7(cluster).gpus.pop_back(); }) ==
        Lines{"n7: GPUs: 7 x NVIDIA H200 140 GiB; 63 nodes have 8 x NVIDIA H200 140 GiB. Leave the node out, or repair "
              "it: dmesg and nvidia-smi show more."});
    CHECK(lines_after([](Cluster& cluster) { n7(cluster).nccl.reset(); }) ==
          Lines{"n7: NCCL: none; 63 nodes have 2.26.2. Install the same libnccl.so.2 on all nodes: the ranks of one "
                "communicator need one version."});
    CHECK(lines_after([](Cluster& cluster) { n7(cluster).version = "0.2.0"; }) ==
          Lines{"n7: ddprun: 0.2.0; 63 nodes have 0.1.0. Install the same version on all nodes."});
    CHECK(lines_after([](Cluster& cluster) { n7(cluster).gbytes_per_s = 4.9; }) ==
          Lines{"n7: bandwidth: 4.9 GB/s; half of the nodes have 10.3 GB/s or more. Check its cable, its switch port, "
                "and `ethtool` or `ibstat` on it."});
    CHECK(lines_after([](Cluster& cluster) { n7(cluster).limits.open_files = 65536; }) ==
          Lines{"n7: open files (ulimit -n): 65536; 63 nodes have 1048576. Set the same limit on all nodes."});
    CHECK(lines_after([](Cluster& cluster) { n7(cluster).limits.open_files = 1024; }) ==
          Lines{"n7: open files (ulimit -n): 1024; this job needs 4096. Raise nofile in /etc/security/limits.conf, or "
                "LimitNOFILE= of the service."});
    CHECK(lines_after([](Cluster& cluster) { n7(cluster).limits.locked_bytes = 8 << 20; }) ==
          Lines{"n7: locked memory (ulimit -l): 8.00 MiB; RDMA needs unlimited. Raise memlock in "
                "/etc/security/limits.conf, or LimitMEMLOCK= of the service."});
    CHECK(
        lines_after([](Cluster& cluster) { n7(cluster).free_shm_bytes = 64 << 20; }) ==
        Lines{
            "n7: free space in /dev/shm: 64.0 MiB; workers need 256 MiB. Remove old files there, or give the container "
            "more (--shm-size, an emptyDir of medium Memory)."});
    CHECK(lines_after([](Cluster& cluster) { n7(cluster).interfaces[0].mtu = 1500; }) ==
          Lines{"n7: MTU of eth0: 1500; 63 nodes have 9000. Set the same MTU on all nodes: large messages get lost "
                "otherwise."});
    CHECK(lines_after([](Cluster& cluster) { n7(cluster).interfaces[0].speed_mbit = 1000; }) ==
          Lines{"n7: speed of eth0: 1 Gbit/s; 63 nodes have 100 Gbit/s. Check cable and switch port: `ethtool` shows "
                "what was negotiated."});
    CHECK(lines_after([](Cluster& cluster) { n7(cluster).interfaces.clear(); }) ==
          Lines{"n7: interface eth0: absent, down or without an address; 63 nodes have it. `ip addr show eth0` on it "
                "shows which."});
    CHECK(
        lines_after([](Cluster& cluster) { n7(cluster).rdma_ports[5].state = "DOWN"; }) ==
        Lines{"n7: RDMA ports: 7 x 400 Gb/sec (4X NDR), 1 x DOWN; 63 nodes have 8 x 400 Gb/sec (4X NDR). Check cables "
              "and ports: `ibstat` shows more."});
}

TEST_CASE("a node without a driver is one finding, not one for each fact that it lacks", "[check][unit]") {
    CHECK(lines_after([](Cluster& cluster) {
              n7(cluster).gpus.clear();
              n7(cluster).driver = n7(cluster).cuda = std::nullopt;
              n7(cluster).gpu_note = "no NVIDIA driver: libnvidia-ml.so.1 is absent";
          }) ==
          Lines{"n7: GPUs: none (no NVIDIA driver: libnvidia-ml.so.1 is absent); 63 nodes have 8 x NVIDIA H200 140 "
                "GiB. Leave the node out, or repair it: dmesg and nvidia-smi show more."});
}

TEST_CASE("each GPU with a process, with errors or with hidden memory is named", "[check][unit]") {
    CHECK(lines_after([](Cluster& cluster) {
              n7(cluster).gpus[3].processes = {{.pid = 4711, .user = "alice", .memory_bytes = std::int64_t{12} << 30},
                                               {.pid = 4712, .user = "", .memory_bytes = {}}};
              n7(cluster).gpus[4].ecc_uncorrected = 2;
              n7(cluster).gpus[5].used_bytes = std::int64_t{20} << 30;
              n7(cluster).gpus[6].ecc_uncorrected.reset();
          }) ==
          Lines{"n7: GPU 3: process 4711 of alice uses 12.0 GiB. End it, or leave the GPU out (--gpus).",
                "n7: GPU 3: process 4712 of another container uses it. End it, or leave the GPU out (--gpus).",
                "n7: GPU 4: 2 uncorrected ECC errors. Reset the GPU (nvidia-smi -r), and replace it if the errors "
                "come back.",
                "n7: GPU 5: 20.0 GiB in use by processes that are not visible here. Look for them on the host, "
                "outside of this container."});
}

TEST_CASE("equal odd nodes share a line, and without a majority all values are listed", "[check][unit]") {
    CHECK(lines_after([](Cluster& cluster) {
              for (int i = 8; i < 16; ++i) cluster.nodes[static_cast<std::size_t>(i)].nccl = "2.18.3";
          })[0]
              .starts_with("n[9-16]: NCCL: 2.18.3; 56 nodes have 2.26.2."));
    const Lines two = lines_after([](Cluster& cluster) { cluster.nodes[1].nccl = "2.18.3"; }, 2);
    REQUIRE(two.size() == 1);
    CHECK_THAT(two[0], Catch::StartsWith("n[1-2]: NCCL: 2.18.3 on n2, 2.26.2 on n1. Install"));
}

TEST_CASE("the odd clock is named, also if it is that of rank 0, and not within its error", "[check][unit]") {
    CHECK(lines_after([](Cluster& cluster) {
              n7(cluster).clock = ClockOffset{-3, 0.1};
          }) ==
          Lines{"n7: clock: 3.0 s behind most nodes. Start its time service: chronyc or timedatectl shows the state."});
    const Lines first = lines_after([](Cluster& cluster) {
        for (std::size_t i = 1; i < cluster.nodes.size(); ++i) cluster.nodes[i].clock->seconds -= 7;
    });
    REQUIRE(first.size() == 1);
    CHECK_THAT(first[0], Catch::StartsWith("n1: clock: 7.0 s ahead of most nodes"));
    CHECK(lines_after([](Cluster& cluster) { n7(cluster).clock = ClockOffset{1.05, 0.1}; }).empty());
}

TEST_CASE("a driver that hangs is found once, also on the only node", "[check][unit]") {
    for (const int nodes : {1, 64}) {
        const Lines lines = lines_after(
            [](Cluster& cluster) {
                Node& node = cluster.nodes.back();
                node.gpus.clear();
                node.driver = node.cuda = std::nullopt;
                node.gpu_note = kDriverHangs;
            },
            nodes);
        CHECK(lines == Lines{fmt::format("n{}: GPUs: the NVIDIA driver does not answer within 20 s. Restart the node: "
                                         "dmesg shows whether a GPU has fallen off the bus.",
                                         nodes)});
    }
}

TEST_CASE("open files follow from the size of the job", "[check][unit]") {
    const auto debian = [](Cluster& cluster) {
        for (Node& node : cluster.nodes) node.limits.open_files = 1024;
    };
    CHECK(lines_after(debian, 4).empty());  // 32 ranks
    CHECK(lines_after(debian, 5).size() == 1);
}

TEST_CASE("a rank with wrong sums is named with its node, and wrong sums everywhere name none", "[check][unit]") {
    CHECK(
        lines_after([](Cluster& cluster) {
            cluster.all_reduce.wrong = {{.rank = 50, .node = 2, .integers = 0, .floats = 3}};  // ranks in turns
        }) ==
        Lines{"n3: sums of the all-reduce: 3 wrong on rank 50 (0 of integers, 3 of floats); 511 ranks are right. Leave "
              "the node out, and test its memory and its network adapter."});
    const Lines all = lines_after(
        [](Cluster& cluster) {
            for (int rank = 0; rank < 16; ++rank) cluster.all_reduce.wrong.push_back({rank, rank / 8, 1, 1});
        },
        2);
    REQUIRE(all.size() == 1);
    CHECK_THAT(all[0], Catch::StartsWith("all nodes: sums of the all-reduce: wrong on all ranks. One rank sent"));
}

TEST_CASE("only nodes that share a machine are left out of the comparison of bandwidths", "[check][unit]") {
    const auto share = [](Cluster& cluster) {
        cluster.nodes[0].boot_id = cluster.nodes[1].boot_id;
        cluster.nodes[0].gbytes_per_s = 0.1;
        cluster.nodes[4].boot_id = cluster.nodes[5].boot_id = "";  // not known
        n7(cluster).gbytes_per_s = 0.2;
    };
    const Lines lines = lines_after(share, 8);
    REQUIRE(lines.size() == 1);
    CHECK_THAT(lines[0], Catch::StartsWith("n7: bandwidth: 0.2 GB/s"));
    Cluster cluster = made_up_cluster(8);
    share(cluster);
    CHECK(comparable_nodes(cluster).size() == 6);
}

TEST_CASE("a slow partner makes no node slow, and two nodes have no slow one", "[check][unit]") {
    Cluster cluster = made_up_cluster(4);
    for (int i = 0; i < 4; ++i)
        for (int j = i + 1; j < 4; ++j) cluster.links.push_back({i, j, i == 2 || j == 2 ? 0.1 : 10});
    set_medians(cluster);
    CHECK(cluster.nodes[0].gbytes_per_s == 10);
    CHECK(cluster.nodes[2].gbytes_per_s == 0.1);
    const auto findings = find_problems(cluster);
    REQUIRE(findings.size() == 1);
    CHECK(findings[0].nodes == Lines{"n3"});
    CHECK(findings[0].table == "network");
    for (Node& node : cluster.nodes) node.host = "localhost";  // of different machines
    CHECK(find_problems(cluster).size() == 1);
    cluster.nodes[0].boot_id = cluster.nodes[1].boot_id = "one machine";  // two nodes are left, of which none is slow
    CHECK(comparable_nodes(cluster).empty());
    CHECK(find_problems(cluster).empty());
    cluster = made_up_cluster(2);
    cluster.links = {{0, 1, 0.001}};
    set_medians(cluster);
    CHECK(find_problems(cluster).empty());
}
