#pragma once
// RankRanges: a set of ranks as the user writes it, "0,8-15". Pure value.

#include <algorithm>
#include <vector>

namespace ddprun {

struct RankRange {
    int first = 0;
    int last = 0;
    friend bool operator==(const RankRange&, const RankRange&) = default;
};

using RankRanges = std::vector<RankRange>;

[[nodiscard]] inline bool contains(const RankRanges& ranges, int rank) {
    return std::ranges::any_of(ranges,
                               [rank](const RankRange& range) { return range.first <= rank && rank <= range.last; });
}

}  // namespace ddprun
