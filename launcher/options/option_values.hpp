#pragma once
// The values that options take, and their parsers: pure, text in, value or Errc::kUsage out. A message says what is wrong and
// what to write; the caller puts the option's or variable's name in front.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/endpoint.hpp"
#include "common/error.hpp"

namespace ddprun::launcher {

inline constexpr int kMaxNodes = 65'536;      ///< of a job; a typing error beyond it is refused, not tried
inline constexpr int kMaxSlots = 4'096;       ///< workers of one node
inline constexpr int kMaxRestartLimit = 1'000'000;

/// --nnodes
struct NodeRange {
    int min = 1;
    int max = 1;
    friend bool operator==(const NodeRange&, const NodeRange&) = default;
};

/// --nproc-per-node: a number, or what to count.
struct Slots {
    enum class Kind { kCount, kCpu, kGpu, kAuto };
    Kind kind = Kind::kCount;
    int count = 1;                            ///< with kCount
    friend bool operator==(const Slots&, const Slots&) = default;
};

/// --redirects and --tee: which streams, as a sum of bits.
enum class StreamCode { kNone = 0, kStdout = 1, kStderr = 2, kBoth = 3 };

/// --rdzv-conf; absent: the default of whoever uses it.
struct RdzvConf {
    std::optional<std::chrono::milliseconds> join_timeout;
    std::optional<std::chrono::milliseconds> last_call_timeout;
    std::optional<std::chrono::milliseconds> read_timeout;
    std::optional<bool> is_host;
    std::string without_effect;               ///< names of keys that were accepted for torchrun's sake, joined by ", "
};

/// The internal option of a process that emulates one node: which one, and where its daemon listens.
struct LocalNode {
    int index = 0;
    Endpoint endpoint;
    int last_words_fd = -1;   ///< where it leaves what is to be printed at the end; -1: nowhere
};

/// "0,2,3"; empty: none are named.
[[nodiscard]] Result<std::vector<int>> parse_local_ranks(std::string_view text);

/// "SIGTERM,USR1", in torchrun's spelling or without SIG: numbers of signals that may end a job.
[[nodiscard]] Result<std::vector<int>> parse_signals(std::string_view text);

[[nodiscard]] Result<NodeRange> parse_nodes(std::string_view text);
[[nodiscard]] Result<Slots> parse_slots(std::string_view text);
/// Only 0 and 3 are served: the files of one stream alone, and maps per rank, are refused by name.
[[nodiscard]] Result<StreamCode> parse_stream_code(std::string_view text);
[[nodiscard]] Result<RdzvConf> parse_rdzv_conf(std::string_view text);
[[nodiscard]] Result<LocalNode> parse_local_node(std::string_view text);
[[nodiscard]] std::string to_string(const LocalNode& node);

/// A decimal number within [min, max]; nothing may follow it.
[[nodiscard]] Result<int> parse_integer(std::string_view text, int min, int max);
/// Seconds, fractions allowed, up to a year.
[[nodiscard]] Result<std::chrono::milliseconds> parse_seconds(std::string_view text, bool zero_allowed);
/// 1/0, true/false, yes/no, on/off, and their first letters as torchrun's is_host takes them.
[[nodiscard]] Result<bool> parse_bool(std::string_view text);
/// A name that may become a folder's: not empty, no slash, no control character, at most 200 bytes.
[[nodiscard]] Result<std::string> parse_name(std::string_view text);
/// One of `allowed`, which are listed in the error.
[[nodiscard]] Result<std::string> parse_choice(std::string_view text, std::initializer_list<std::string_view> allowed);

}  // namespace ddprun::launcher
