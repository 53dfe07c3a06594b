#pragma once
// AllReduceRules: chooses the algorithm of all-reduce and reduce between nodes, from one table that DDPRUN_ALLREDUCE
// can replace. All algorithms add up in the same order, so the choice changes no bit of a result. Pure.
//
// The algorithms, for N nodes and a buffer of S bytes:
//   direct   Every node sends its sums to every other. 1 step, (N-1) S bytes from each node.
//   rd       The same sums, by Bruck's all-gather (Bruck et al. 1997). log2(N) steps and messages, (N-1) S bytes.
//   scatter  Reduce-scatter + all-gather (Rabenseifner 2004; Thakur, Rabenseifner, Gropp 2005) with pairwise exchange.
//            2 steps, 2 (N-1)/N S bytes, the minimum.
// Recursive doubling or halving of the sums themselves, or a ring, would add in an order that depends on position and
// N.

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::detail {

enum class NetworkAlgorithm : std::uint8_t {
    kDirect,    ///< "direct"
    kDoubling,  ///< "rd"
    kScatter,   ///< "scatter"
};

/// Applies to buffers of up to `max_bytes` in groups over up to `max_nodes` nodes. The first rule that fits counts.
struct AllReduceRule {
    static constexpr std::size_t kAny = std::numeric_limits<std::size_t>::max();
    std::size_t max_nodes = kAny;
    std::size_t max_bytes = kAny;
    NetworkAlgorithm algorithm = NetworkAlgorithm::kScatter;
    friend bool operator==(const AllReduceRule&, const AllReduceRule&) = default;
};

/// The default table.
inline constexpr std::array kUsualRules{
    AllReduceRule{2, 256u << 10, NetworkAlgorithm::kDirect},  // as many bytes as kScatter, in one step instead of two
    AllReduceRule{8, 16u << 10, NetworkAlgorithm::kDirect},   // one step, few enough messages
    AllReduceRule{256, 16u << 10, NetworkAlgorithm::kDoubling},
    AllReduceRule{},
};

class AllReduceRules {
public:
    AllReduceRules() : rules_(kUsualRules.begin(), kUsualRules.end()) {}

    /// Parses "rd:0-32768;scatter:32769-max": ranges of sizes in bytes, without gaps, from 0 to max. Without text the
    /// default table applies. Throws Error{Environment} naming the wrong part.
    [[nodiscard]] static AllReduceRules parse(const std::optional<std::string>& text);

    [[nodiscard]] NetworkAlgorithm choose(std::size_t bytes, std::size_t nodes) const;
    /// Returns one word that identifies the rules: "usual", or text in parse()'s form.
    [[nodiscard]] const std::string& text() const { return text_; }

private:
    std::vector<AllReduceRule> rules_;
    std::string text_ = "usual";
};

[[nodiscard]] std::string_view to_string(NetworkAlgorithm algorithm);

}  // namespace ddp::detail
