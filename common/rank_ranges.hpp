#pragma once
// RankRanges: a set of ranks as the user writes it, "0,8-15". Pure value.

#include <algorithm>
#include <vector>

#include "common/text/list.hpp"

namespace ddprun {

using RankRanges = std::vector<NumberRange>;

[[nodiscard]] inline bool contains(const RankRanges& ranges, int rank) {
    return std::ranges::any_of(ranges,
                               [rank](const NumberRange& range) { return range.first <= rank && rank <= range.last; });
}

}  // namespace ddprun
