#pragma once
// Defines the values of options and their parsers: pure functions from text to a value or Errc::kUsage. A message says
// what is wrong and what to write; options.cpp adds the option's or variable's name in front.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/endpoint.hpp"
#include "common/error.hpp"
#include "common/rank_ranges.hpp"
#include "common/stream_code.hpp"

namespace ddprun::launcher {

using ddprun::StreamCode;
using ddprun::StreamCodes;

inline constexpr int kMaxRestartLimit = 1'000'000;
inline constexpr int kMaxKeptLogs = 1'000;

/// The value of --nnodes.
struct NodeRange {
    int min = 1;
    int max = 1;
    friend bool operator==(const NodeRange&, const NodeRange&) = default;
};

/// The value of --nproc-per-node: a number, or the kind of device to count.
struct Slots {
    enum class Kind { kCount, kCpu, kGpu, kXpu, kAuto };
    Kind kind = Kind::kCount;
    int count = 1;  ///< with kCount
    friend bool operator==(const Slots&, const Slots&) = default;
};

/// The value of --numa-binding: the CPUs that a worker gets.
enum class NumaBinding {
    kNode,         ///< those of a NUMA node
    kSocket,       ///< those of a package
    kExclusive,    ///< cores of a NUMA node that no other worker gets
    kCoreComplex,  ///< those of a NUMA node that share their last cache
};
[[nodiscard]] std::string to_string(NumaBinding binding);

inline constexpr std::uint16_t kDefaultEtcdPort = 2379;

/// The keys of --rdzv-conf for --rdzv-backend etcd.
struct EtcdConf {
    std::string a_key;  ///< one of these keys that was given; empty: none
    bool tls = false;   ///< protocol=https
    std::string ca_file;
    std::string cert_file;
    std::string key_file;
    std::optional<std::string> prefix;
    std::string user;
    std::string password_file;
};

/// The value of --rdzv-conf; an absent member has the agent's or daemon's default.
struct RdzvConf {
    std::optional<std::chrono::milliseconds> join_timeout;
    std::optional<std::chrono::milliseconds> last_call_timeout;
    std::optional<std::chrono::milliseconds> read_timeout;
    std::optional<std::chrono::milliseconds> keep_alive_interval;
    std::optional<int> keep_alive_attempts;
    std::optional<bool> is_host;
    EtcdConf etcd;
    std::optional<int> node_rank;  ///< torchrun's key rank, which it sets from --node-rank
    std::string without_effect;    ///< torchrun's keys that mean nothing here, joined by ", "
};

/// The value of --as-local-node, the internal option of a process that emulates one node.
struct LocalNode {
    int index = 0;
    Endpoint endpoint;
    int final_report_fd = -1;  ///< of FinalReport (launcher/final_report.hpp); -1: there is none
    int open_lines_fd = -1;    ///< of agent::SharedLines; -1: there is none
};

/// Parses "0,2,3"; an empty text is an empty list.
[[nodiscard]] Result<std::vector<int>> parse_local_ranks(std::string_view text);

/// Parses "0,8-15"; an empty text is an empty list.
[[nodiscard]] Result<RankRanges> parse_rank_ranges(std::string_view text);

/// Parses "loss,step" to texts of which a line is to contain one. ",," is a comma within a text; empty texts, which
/// every line contains, are left out.
[[nodiscard]] std::vector<std::string> parse_filters(std::string_view text);

/// Parses "SIGTERM,USR1", names as in torchrun or without SIG, to the numbers of signals that may end a job.
[[nodiscard]] Result<std::vector<int>> parse_signals(std::string_view text);

/// Parses "4" or "2:4".
[[nodiscard]] Result<NodeRange> parse_nodes(std::string_view text);
/// Parses a number, "cpu", "gpu", "xpu" or "auto".
[[nodiscard]] Result<Slots> parse_slots(std::string_view text);
/// Parses "node", "socket", "exclusive" or "core-complex".
[[nodiscard]] Result<NumaBinding> parse_numa_binding(std::string_view text);
/// Parses "auto" to an empty list, and "0,2,4-7,GPU-8a1f" to names as in CUDA_VISIBLE_DEVICES: 0, 2, 4, 5, 6, 7 and
/// GPU-8a1f.
[[nodiscard]] Result<std::vector<std::string>> parse_gpus(std::string_view text);
/// Parses "3", a code for all local ranks, or "0:3,1:1", a code for each rank that is named and 0 for the others.
[[nodiscard]] Result<StreamCodes> parse_stream_codes(std::string_view text);
/// Parses "KEY=VALUE,KEY=VALUE"; blanks around keys and values do not count.
[[nodiscard]] Result<RdzvConf> parse_rdzv_conf(std::string_view text);
/// Parses "HOST[:PORT],HOST[:PORT]", the servers of etcd.
[[nodiscard]] Result<std::vector<Endpoint>> parse_etcd_servers(std::string_view text);
/// Parses the text that to_string() returns: "0,5@127.0.0.1:29400".
[[nodiscard]] Result<LocalNode> parse_local_node(std::string_view text);
[[nodiscard]] std::string to_string(const LocalNode& node);

/// Parses "100M": bytes, KiB (K), MiB (M) or GiB (G), at least 1K.
[[nodiscard]] Result<std::uint64_t> parse_size(std::string_view text);
/// Parses a decimal number within [min, max].
[[nodiscard]] Result<int> parse_integer(std::string_view text, int min, int max);
/// Parses seconds, fractions allowed, up to a year.
[[nodiscard]] Result<std::chrono::milliseconds> parse_seconds(std::string_view text, bool zero_allowed);
/// Parses 1/0, true/false, yes/no, on/off, and their first letters as torchrun's is_host does.
[[nodiscard]] Result<bool> parse_bool(std::string_view text);
/// Accepts any text that check_run_id() accepts.
[[nodiscard]] Result<std::string> parse_name(std::string_view text);
/// Accepts one of `allowed`; the error lists them.
[[nodiscard]] Result<std::string> parse_choice(std::string_view text, std::initializer_list<std::string_view> allowed);

}  // namespace ddprun::launcher
