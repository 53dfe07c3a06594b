#pragma once
// AllReduceRules: by which algorithm all_reduce and reduce go between nodes. One table; DDPRUN_ALLREDUCE has another.
// All of them add up in the same order, so that the choice changes no bit of a result. Pure.

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
    kDirect,    ///< "direct": each node sends its sums to all others, which add up all: one message each way
    kDoubling,  ///< "rd": the same, handed on over log2(nodes) steps: fewer messages
    kScatter,   ///< "scatter": each node adds up a part of its own and sends it to all: the fewest bytes
};

/// For buffers of up to `most_bytes` in groups over up to `most_nodes` nodes. The first rule that fits counts.
struct AllReduceRule {
    static constexpr std::size_t kAny = std::numeric_limits<std::size_t>::max();
    std::size_t most_nodes = kAny;
    std::size_t most_bytes = kAny;
    NetworkAlgorithm algorithm = NetworkAlgorithm::kScatter;
    friend bool operator==(const AllReduceRule&, const AllReduceRule&) = default;
};

inline constexpr std::array kUsualRules{
    AllReduceRule{2, 256u << 10, NetworkAlgorithm::kDirect},  // as many bytes as by parts, in one step instead of two
    AllReduceRule{8, 16u << 10, NetworkAlgorithm::kDirect},   // one step, few enough messages
    AllReduceRule{256, 16u << 10, NetworkAlgorithm::kDoubling},
    AllReduceRule{},
};

class AllReduceRules {
public:
    AllReduceRules() : rules_(kUsualRules.begin(), kUsualRules.end()) {}

    /// "rd:0-32768;scatter:32769-max": for which sizes in bytes which algorithm, without gaps, from 0 to max. Nothing:
    /// the usual ones. Throws Error{Environment} that says what is wrong.
    [[nodiscard]] static AllReduceRules parse(const std::optional<std::string>& text);

    [[nodiscard]] NetworkAlgorithm choose(std::size_t bytes, std::size_t nodes) const;
    /// One word, the same for the same rules: "usual", or in parse()'s form.
    [[nodiscard]] const std::string& text() const { return text_; }

private:
    std::vector<AllReduceRule> rules_;
    std::string text_ = "usual";
};

[[nodiscard]] std::string_view to_string(NetworkAlgorithm algorithm);

}  // namespace ddp::detail
