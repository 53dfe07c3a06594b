#pragma once
// Diagnoses an error that is found at once, not by a deadline: the ranks called different operations (MISMATCH), one of
// them aborted the group (ABORTED), or one of them left it (LEFT). The ranks that failed have ended since; their flight
// records still show their calls. The text of a mismatched collective comes from stall_text.hpp. Pure.

#include <string>
#include <vector>

#include "rendezvous/diagnosis/stall.hpp"
#include "rendezvous/protocol/messages.hpp"

namespace ddprun::diagnosis {

/// The diagnosis of such an error.
struct ErrorVerdict {
    std::string text;                ///< one line; empty: another error, or the flight records do not show it
    std::string hint = {};           ///< what to do next
    std::vector<int> culprits = {};  ///< ranks that caused it; empty: not known
};

/// Returns "MISMATCH at #183 of group 'world': …", as diagnose() does, or "ABORTED group 'world': rank 3 (node b)
/// aborted it: 'loss is NaN'; …", or "LEFT rank 3 (node b): …" if `dead` failed because a member had left the group
/// without an error. If there are several errors in the last kRecentTimeout, the first one counts. `records`: as for
/// diagnose(), read after the end of `dead`. Empty if that worker did not end because of such an error, or the flight
/// records do not show it.
[[nodiscard]] ErrorVerdict diagnose_error(const std::vector<RankRecord>& records, const FailureReport& dead);

}  // namespace ddprun::diagnosis
