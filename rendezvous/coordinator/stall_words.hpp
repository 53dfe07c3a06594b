#pragma once
// What is said about a stall, in one line. Pure.

#include <map>
#include <string>
#include <vector>

#include "rendezvous/coordinator/stall.hpp"
#include "rendezvous/coordinator/stall_waits.hpp"

namespace ddprun::coordinator {

using BoardsByRank = std::map<int, const RankBoard*>;

/// What keeps one that waits, before it is put into words.
struct StallFinding {
    StallKind kind = StallKind::kNone;
    const GroupWaits* group = nullptr;
    const StallWait* wait = nullptr;
    std::vector<int> ranks = {};  ///< whom it names
};

/// Whether the group still runs when the line is read.
enum class Tense { kPresent, kPast };

[[nodiscard]] std::string describe(const StallFinding& finding, const BoardsByRank& all, Tense tense);

/// "ranks 0-3, 8 (node a), 4 (node b)": at most four nodes. Those whose host is not known stand without one.
[[nodiscard]] std::string name_ranks(const std::vector<int>& ranks, const BoardsByRank& all);

/// Those who called something else than most; all, where no side of a collective is larger than each other one.
[[nodiscard]] std::vector<int> odd_ones(const GroupWaits& group, const StallWait& wait);

/// Whether those who have come to a collective called different things.
[[nodiscard]] bool is_mismatch(const GroupWaits& group, const StallWait& wait);

}  // namespace ddprun::coordinator
