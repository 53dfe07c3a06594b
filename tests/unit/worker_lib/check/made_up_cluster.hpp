#pragma once
// A cluster whose nodes are all well, for tests that spoil one of them.

#include <fmt/format.h>

#include "worker_lib/check/facts.hpp"

namespace ddp::check {

inline Node made_up_node(int index) {
    Node node;
    node.name = node.host = fmt::format("n{}", index + 1);
    node.boot_id = fmt::format("boot-{}", index);
    node.first_rank = 8 * index;
    node.ranks = 8;
    node.version = "0.1.0";
    node.kernel = "6.1.0-18-amd64";
    node.cpus = 192;
    node.load = 0.1;
    node.memory_bytes = std::int64_t{2} << 40;
    node.free_memory_bytes = (std::int64_t{2} << 40) - (std::int64_t{index} << 30);
    node.shm_bytes = node.free_shm_bytes = std::int64_t{1} << 40;
    node.limits = {.open_files = 1 << 20, .locked_bytes = {}, .core_bytes = 0, .processes = 8000000};
    node.interfaces = {{.name = "eth0", .family = "ipv4", .speed_mbit = 100000, .mtu = 9000, .physical = true}};
    node.rdma_ports.assign(8, {.name = "mlx5_0/1", .state = "ACTIVE", .rate = "400 Gb/sec (4X NDR)"});
    node.gpus.assign(8, {.name = "NVIDIA H200",
                         .memory_bytes = std::int64_t{150754820096},
                         .used_bytes = std::int64_t{600} << 20,
                         .ecc_uncorrected = 0,
                         .processes = {}});
    for (int gpu = 0; gpu < 8; ++gpu) {
        node.gpus[static_cast<std::size_t>(gpu)].index = gpu;
        node.gpus[static_cast<std::size_t>(gpu)].uuid = fmt::format("GPU-{}a7e", gpu);
    }
    node.driver = "550.54.15";
    node.cuda = "12.4";
    node.nccl = "2.26.2";
    node.clock = ClockOffset{1e-4 * index, 5e-5};
    node.gbytes_per_s = 10 + 0.01 * index;
    return node;
}

inline Cluster made_up_cluster(int nodes) {
    Cluster cluster;
    for (int i = 0; i < nodes; ++i) cluster.nodes.push_back(made_up_node(i));
    cluster.all_reduce = {.ranks = 8 * nodes, .bytes = 4 << 20, .seconds = 0.001, .wrong = {}};
    return cluster;
}

}  // namespace ddp::check
