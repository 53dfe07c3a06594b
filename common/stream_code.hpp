#pragma once
// StreamCode, StreamCodes: the output streams of workers that an option concerns, in torchrun's numbers. Pure values.

#include <algorithm>
#include <map>

namespace ddprun {

/// A set of output streams, as bits.
enum class StreamCode { kNone = 0, kStdout = 1, kStderr = 2, kBoth = 3 };

[[nodiscard]] constexpr bool contains(StreamCode set, StreamCode stream) {
    return (static_cast<int>(set) & static_cast<int>(stream)) != 0;
}

/// The value of --redirects or --tee: a set of streams for each local rank.
struct StreamCodes {
    StreamCode others = StreamCode::kNone;   ///< of the local ranks that `by_rank` does not name
    std::map<int, StreamCode> by_rank = {};  ///< by local rank; a node may lack some of them

    [[nodiscard]] StreamCode of(int local_rank) const {
        const auto named = by_rank.find(local_rank);
        return named != by_rank.end() ? named->second : others;
    }
    /// Returns whether a stream of some rank is in the set.
    [[nodiscard]] bool any() const {
        return others != StreamCode::kNone ||
               std::ranges::any_of(by_rank, [](const auto& named) { return named.second != StreamCode::kNone; });
    }
    friend bool operator==(const StreamCodes&, const StreamCodes&) = default;
};

}  // namespace ddprun
