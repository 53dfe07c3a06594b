#pragma once
// Whose fault a stall is, as far as the boards tell, and what to do about it. Pure.

#include <string>
#include <vector>

#include "rendezvous/coordinator/stall_words.hpp"

namespace ddprun::coordinator {

/// Ranks of the job that the line accuses; empty: nobody. Of ranks that called different things those that most others
/// contradict, or all of them where that is not known.
[[nodiscard]] std::vector<int> blamed(const StallFinding& finding);

/// One sentence without a full stop: what to do next. Empty: the line says it.
[[nodiscard]] std::string hint_for(const StallFinding& finding, const BoardsByRank& all, Tense tense);

/// "line. hint"; the line alone where there is no hint.
[[nodiscard]] std::string with_hint(const std::string& line, const std::string& hint);

inline constexpr const char* kStepsHint =
    "Give all ranks the same number of steps; where their data differ, ddp::Join lets those with fewer batches end "
    "together with the others";
inline constexpr const char* kInFlightHint = "Wait for each Work before its ProcessGroup ends";
inline constexpr const char* kMisfitHint = "Give the send and its receive one type and one count";

/// Of a rank that gave its group up.
[[nodiscard]] std::string abort_hint(int rank);

}  // namespace ddprun::coordinator
