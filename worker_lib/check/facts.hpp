#pragma once
// The facts of one node and the measurements between nodes, as plain values, and their JSON. collect.cpp and
// measure.cpp fill them in, findings.cpp compares them, table.cpp shows them. Pure.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::check {

/// A network interface that is up and has an address. Loopback is left out.
struct NetworkInterface {
    std::string name;
    std::string family;             ///< "ipv4", "ipv6" or "ipv4+ipv6"
    std::optional<int> speed_mbit;  ///< per second; absent: the kernel does not know it
    int mtu = 0;
    bool physical = false;  ///< it has a device of its own; false: a bridge, a virtual pair, a tunnel
};

/// A port of an InfiniBand or RoCE adapter.
struct RdmaPort {
    std::string name;   ///< "mlx5_0/1"
    std::string state;  ///< "ACTIVE", "DOWN"
    std::string rate;   ///< "400 Gb/sec (4X NDR)"
};

/// The note about a driver whose calls hang. It is a finding even if no other node has GPUs.
inline constexpr std::string_view kDriverHangs = "the NVIDIA driver does not answer within 20 s";

/// A process that uses a GPU. The check itself uses none.
struct GpuProcess {
    int pid = 0;
    std::string user;                          ///< empty: not known, because it is in another container
    std::optional<std::int64_t> memory_bytes;  ///< absent: the driver does not know it
};

struct Gpu {
    std::string name;
    std::int64_t memory_bytes = 0;
    std::int64_t used_bytes = 0;
    std::optional<std::int64_t> ecc_uncorrected;  ///< since the driver was loaded; absent: no ECC
    std::vector<GpuProcess> processes;
    int index = 0;       ///< in the order of the bus, as nvidia-smi counts
    std::string uuid{};  ///< "GPU-8a1f…"; empty: the driver does not know it
};

/// The soft limits of a worker; absent: unlimited.
struct Limits {
    std::optional<std::int64_t> open_files;
    std::optional<std::int64_t> locked_bytes;
    std::optional<std::int64_t> core_bytes;
    std::optional<std::int64_t> processes;
};

/// The difference between the clock of a node and that of rank 0's node.
struct ClockOffset {
    double seconds = 0;
    double error_seconds = 0;  ///< the true offset is at most this far away: half of the shortest round trip
};

struct Node {
    std::string name;  ///< unique in the job, as in ddprun's messages
    std::string host;
    std::string boot_id;  ///< that nodes on one machine share; empty: it is not known
    int first_rank = 0;
    int ranks = 0;
    std::string version;  ///< of ddprun and ddp::ddp
    std::string kernel;
    double cpus = 0;  ///< by affinity mask and control group
    double load = 0;  ///< the average of the last minute
    std::int64_t memory_bytes = 0;
    std::int64_t free_memory_bytes = 0;
    std::int64_t shm_bytes = 0;  ///< of /dev/shm; 0: there is none
    std::int64_t free_shm_bytes = 0;
    Limits limits;
    std::vector<NetworkInterface> interfaces;
    std::vector<RdmaPort> rdma_ports;
    std::vector<Gpu> gpus;    ///< those that the node's ranks may use
    std::string gpu_note;     ///< why there are no GPUs, or more than the ranks may use; empty: neither
    std::string unknown_gpu;  ///< where CUDA_VISIBLE_DEVICES ends for CUDA: no GPU has this entry; empty: none
    std::optional<std::string> driver;   ///< version of the NVIDIA driver
    std::optional<std::string> cuda;     ///< the newest CUDA that the driver supports
    std::optional<std::string> nccl;     ///< version of libnccl.so.2, absent: none is found
    std::optional<ClockOffset> clock;    ///< absent: it was not measured
    std::optional<double> gbytes_per_s;  ///< the median of its pairs; absent: it was in none
};

/// A pair of nodes that exchanged messages, both ways at once.
struct Link {
    int first = 0;            ///< index into Cluster::nodes
    int second = 0;           ///< the same
    double gbytes_per_s = 0;  ///< each way
};

/// A rank that got wrong sums of the all-reduce.
struct WrongSums {
    int rank = 0;
    int node = 0;  ///< index into Cluster::nodes
    std::int64_t integers = 0;
    std::int64_t floats = 0;
};

/// The all-reduce over all ranks.
struct AllReduce {
    int ranks = 0;
    std::int64_t bytes = 0;  ///< of the floats
    double seconds = 0;      ///< of the slowest rank, the best of a few
    std::vector<WrongSums> wrong;
};

/// All nodes of a job.
struct Cluster {
    std::vector<Node> nodes;
    std::vector<Link> links;
    int rounds = 0;           ///< of the pairs
    int complete_rounds = 0;  ///< after which every node would have met every other one
    AllReduce all_reduce;
};

/// A difference or a value that breaks or slows down jobs.
struct Finding {
    std::vector<std::string> nodes;
    std::string what;      ///< "driver"
    std::string seen;      ///< "535.54.03"
    std::string expected;  ///< "63 nodes have 550.54.15"; empty: nothing to compare with
    std::string advice;    ///< a sentence
    std::string table{};   ///< that shows the value: "hosts", "limits", "network", "gpus"; "sums" has none
};

/// CUDA_VISIBLE_DEVICES of one rank.
struct VisibleGpus {
    std::optional<std::string> list;  ///< absent: the variable is not set, and the rank may use all GPUs
};

/// The measurements of one rank.
struct RankResult {
    std::vector<Link> links;  ///< those that this rank timed
    std::int64_t wrong_integers = 0;
    std::int64_t wrong_floats = 0;
    double all_reduce_seconds = 0;
};

[[nodiscard]] std::string to_json(const Node& node);
[[nodiscard]] std::string to_json(const VisibleGpus& visible);
[[nodiscard]] std::string to_json(const RankResult& result);
/// Parses what to_json() has made. Throws std::exception for any other text.
[[nodiscard]] Node parse_node(std::string_view json);
[[nodiscard]] VisibleGpus parse_visible_gpus(std::string_view json);
[[nodiscard]] RankResult parse_rank_result(std::string_view json);

/// Returns the text for --json, with a line end. docs/check.md describes it.
[[nodiscard]] std::string report_json(const Cluster& cluster, const std::vector<Finding>& findings);

}  // namespace ddp::check
