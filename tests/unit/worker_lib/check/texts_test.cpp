#include "worker_lib/check/texts.hpp"

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/check/made_up_cluster.hpp"

using namespace ddp::check;
using Names = std::vector<std::string>;

TEST_CASE("names that differ in their last number share it", "[check][unit]") {
    CHECK(node_ranges({}).empty());
    CHECK(node_ranges({"vm"}) == "vm");
    CHECK(node_ranges({"n7"}) == "n7");
    CHECK(node_ranges({"n1", "n2", "n3", "n8", "gateway"}) == "n[1-3,8],gateway");
    CHECK(node_ranges({"n9", "n10", "n11"}) == "n[9-11]");
    CHECK(node_ranges({"n08", "n09", "n10"}) == "n[08-10]");
    CHECK(node_ranges({"gpu-1-3.cluster", "gpu-1-4.cluster", "gpu-2-1.cluster"}) ==
          "gpu-1-[3-4].cluster,gpu-2-1.cluster");
    CHECK(node_ranges({"n3", "n1", "n2"}) == "n[1-3]");
    CHECK(node_ranges({"a12345678901", "a12345678902"}) == "a12345678901,a12345678902");  // no number of ours
    Names odd;
    for (int i = 1; i < 64; i += 2) odd.push_back(fmt::format("n{}", i));
    const std::string cut = short_node_ranges(odd, 30);
    CHECK(cut.size() <= 30);
    CHECK_THAT(cut, Catch::StartsWith("n[1,3,5,7") && Catch::EndsWith("… (32 nodes)"));
}

TEST_CASE("facts are short texts", "[check][unit]") {
    CHECK(bytes_text(0) == "0 B");
    CHECK(bytes_text(8 << 20) == "8.00 MiB");
    CHECK(bytes_text(150754820096) == "140 GiB");
    CHECK(speed_text(100) == "100 Mbit/s");
    CHECK(speed_text(2500) == "2.5 Gbit/s");
    CHECK(limit_text({}) == "unlimited");
    Node node = made_up_node(0);
    CHECK(gpus_text(node.gpus) == "8 x NVIDIA H200 140 GiB");
    CHECK(rdma_text(node.rdma_ports) == "8 x 400 Gb/sec (4X NDR)");
    node.gpus[1].name = "NVIDIA A100";
    node.rdma_ports[3].state = "DOWN";
    CHECK(gpus_text(node.gpus) == "1 x NVIDIA A100 140 GiB, 7 x NVIDIA H200 140 GiB");
    CHECK(rdma_text(node.rdma_ports) == "7 x 400 Gb/sec (4X NDR), 1 x DOWN");
    CHECK(driver_text(node) == "550.54.15 (CUDA 12.4)");
    CHECK(gpus_text({}) == "none");
    CHECK(rdma_text({}) == "none");
}

TEST_CASE("facts survive the way to rank 0", "[check][unit]") {
    Node node = made_up_node(3);
    node.gpus[2].processes = {{.pid = 4711, .user = "alice", .memory_bytes = {}}};
    node.limits.open_files = {};
    const Node there = parse_node(to_json(node));
    CHECK(to_json(there) == to_json(node));
    CHECK(there.gpus[2].processes[0].user == "alice");
    CHECK_FALSE(there.limits.open_files.has_value());
    CHECK(there.clock->seconds == node.clock->seconds);
    const RankResult result{.links = {{0, 3, 1.5}}, .wrong_integers = 1, .wrong_floats = 2, .all_reduce_seconds = 3};
    CHECK(to_json(parse_rank_result(to_json(result))) == to_json(result));
    CHECK_THROWS(parse_node("{}"));
}
