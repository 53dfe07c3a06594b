#pragma once
// Names the culprits of a stall, as far as the flight records show them, and returns the hint: the sentences that
// follow the line about the stall. A command inside of that line (`kill -CONT`) is from stall_text.cpp. Pure.

#include <string>
#include <vector>

#include "rendezvous/diagnosis/stall_text.hpp"

namespace ddprun::diagnosis {

/// Returns the ranks of the job that caused the stall; empty: not known. If the ranks called different operations, the
/// minority is the culprit, or all ranks if there is no majority.
[[nodiscard]] std::vector<int> culprits(const StallFinding& finding);

/// Returns what to do next, a sentence without a full stop. Empty: the line itself contains it.
[[nodiscard]] std::string hint_for(const StallFinding& finding, const RecordsByRank& all, Tense tense);

/// Returns "line. hint"; the line alone if there is no hint.
[[nodiscard]] std::string with_hint(const std::string& line, const std::string& hint);

inline constexpr const char* kStepsHint =
    "Give all ranks the same number of steps; where their data differ, ddp::Join lets those with fewer batches end "
    "together with the others";
inline constexpr const char* kInFlightHint = "Wait for each Work before its ProcessGroup ends";
inline constexpr const char* kMisfitHint = "Give the send and its receive one type and one count";

/// Returns the hint for a rank that aborted its group.
[[nodiscard]] std::string abort_hint(int rank);

}  // namespace ddprun::diagnosis
