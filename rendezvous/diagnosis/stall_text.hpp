#pragma once
// Makes the text of a StallFinding: one line that begins with the verdict (DEAD, MISMATCH, LAGGING, WAITING, ALL
// PRESENT, A CIRCLE). stall.hpp uses it for ranks that are stuck, mismatch.hpp for a collective that has failed. Pure.

#include <map>
#include <string>
#include <vector>

#include "rendezvous/diagnosis/stall.hpp"
#include "rendezvous/diagnosis/wait_graph.hpp"

namespace ddprun::diagnosis {

using RecordsByRank = std::map<int, const RankRecord*>;

/// The reason why a wait does not end: a verdict before it becomes text.
struct StallFinding {
    StallKind kind = StallKind::kNone;
    const GroupWaits* group = nullptr;
    const StallWait* wait = nullptr;
    std::vector<int> ranks = {};  ///< the ranks that it names
};

/// The tense of the line: kPresent while the group still runs.
enum class Tense { kPresent, kPast };

/// Returns the line of the verdict. Returns an empty text for StallKind::kNone.
[[nodiscard]] std::string describe(const StallFinding& finding, const RecordsByRank& all, Tense tense);

/// Returns whether describe() names, in the present tense, a process that is stopped and how to continue it.
[[nodiscard]] bool names_stopped_process(const StallFinding& finding, const RecordsByRank& all);

/// Returns "ranks 0-3, 8 (node a), 4 (node b)": at most four nodes. Ranks whose host is not known have none.
[[nodiscard]] std::string name_ranks(const std::vector<int>& ranks, const RecordsByRank& all);

/// Returns the ranks that called another operation than the majority; all ranks if there is no majority.
[[nodiscard]] std::vector<int> minority_ranks(const GroupWaits& group, const StallWait& wait);

/// Returns whether the ranks that arrived at a collective called different operations.
[[nodiscard]] bool is_mismatch(const GroupWaits& group, const StallWait& wait);

}  // namespace ddprun::diagnosis
