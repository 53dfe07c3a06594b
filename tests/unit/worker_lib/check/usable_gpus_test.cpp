// The GPUs of a made-up node that its ranks may use, and processes on the others.

#include "worker_lib/check/usable_gpus.hpp"

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/check/made_up_cluster.hpp"
#include "worker_lib/check/findings.hpp"

using namespace ddp::check;
using Indices = std::vector<int>;

namespace {

Node node_for(const std::vector<std::optional<std::string>>& lists) {
    Node node = made_up_node(0);
    std::vector<VisibleGpus> visible;
    for (const auto& list : lists) visible.push_back({list});
    keep_usable_gpus(node, visible);
    return node;
}

Indices usable(const std::vector<std::optional<std::string>>& lists) {
    Indices indices;
    for (const Gpu& gpu : node_for(lists).gpus) indices.push_back(gpu.index);
    return indices;
}

const Indices kAll{0, 1, 2, 3, 4, 5, 6, 7};

}  // namespace

TEST_CASE("the GPUs of a node are those that any of its ranks may use", "[check][unit]") {
    CHECK(usable({std::nullopt}) == kAll);
    CHECK(usable({"1", std::nullopt}) == kAll);
    CHECK(usable({"3,1"}) == Indices{1, 3});
    CHECK(usable({"0", "2", " 5 , 2"}) == Indices{0, 2, 5});
    CHECK(usable({"GPU-6a", "GPU-1"}) == Indices{1, 6});
    CHECK(usable({"1,9,2"}) == Indices{1});  // CUDA stops at an entry that no GPU has
    CHECK(usable({"1,-1,2"}) == Indices{1});
    CHECK(usable({"GPU-77,2"}) == Indices{});
    CHECK(node_for({"1,2"}).gpu_note.empty());
}

TEST_CASE("a list without GPUs hides all, and one that cannot be resolved none, with a note", "[check][unit]") {
    for (const std::string list : {"", "-1", "NoDevFiles"}) {
        CHECK(usable({list}).empty());
        CHECK(node_for({list}).gpu_note == "CUDA_VISIBLE_DEVICES hides all");
    }
    for (const std::string entry : {"MIG-77", "MIG-GPU-1a/3/0", "GPU-", "one"}) {
        CHECK(usable({"2," + entry}) == kAll);
        CHECK(node_for({"2," + entry}).gpu_note ==
              "'" + entry + "' in CUDA_VISIBLE_DEVICES is not one whole GPU: all were checked");
    }
    Node without = made_up_node(0);
    without.gpus.clear();
    without.gpu_note = "no driver";
    keep_usable_gpus(without, {{"1"}});
    CHECK(without.gpu_note == "no driver");
}

TEST_CASE("an entry of the list that no GPU has is a finding", "[check][unit]") {
    CHECK(node_for({"1,9,2"}).unknown_gpu == "9");
    CHECK(node_for({"1", "2,GPU-77"}).unknown_gpu == "GPU-77");
    for (const std::string list : {"", "-1", "1,-1", "NoDevFiles", "1,2"}) CHECK(node_for({list}).unknown_gpu.empty());
    Cluster cluster = made_up_cluster(2);
    keep_usable_gpus(cluster.nodes[0], {{"0,1,2,3,4,5,6,7,8"}});
    const auto found = find_problems(cluster);
    REQUIRE(found.size() == 1);
    CHECK(found[0].nodes == std::vector<std::string>{"n1"});
    CHECK(found[0].what == "CUDA_VISIBLE_DEVICES");
    CHECK(found[0].seen == "no GPU is '8': CUDA uses none that the list names after it");
}

TEST_CASE("a process on a GPU that the job does not use is no finding", "[check][unit]") {
    Cluster cluster = made_up_cluster(1);
    cluster.nodes[0].gpus[3].processes = {{.pid = 7, .user = "eve", .memory_bytes = {}}};
    keep_usable_gpus(cluster.nodes[0], {{"2,3"}});
    const auto found = find_problems(cluster);
    REQUIRE(found.size() == 1);
    CHECK(found[0].what == "GPU 3");
    keep_usable_gpus(cluster.nodes[0], {{"2"}});
    CHECK(find_problems(cluster).empty());
}
