#pragma once
// The verdict on an error that is found at once, not by a deadline: the ranks called different things, or one of them
// gave the group up. Those who failed of it have ended since; their boards still say what they called. Pure.

#include <string>
#include <vector>

#include "rendezvous/coordinator/messages.hpp"
#include "rendezvous/coordinator/stall.hpp"

namespace ddprun::coordinator {

struct ErrorVerdict {
    std::string text;              ///< one line; empty: that was no such error, or the boards do not tell
    std::string hint = {};         ///< what to do next
    std::vector<int> blamed = {};  ///< whose fault it is; empty: not known
};

/// "MISMATCH at #183 of group 'world': …", as in judge(), or "ABORTED group 'world': rank 3 (node b) gave it up: 'loss
/// is NaN'; …", or "LEFT rank 3 (node b): …" when `dead` failed because a member had gone as if all were done. Of
/// several errors in the last kRecentTimeout the first one. `boards`: as in judge(), read after the end of `dead`.
/// Empty when that did not end of such an error, or the boards do not tell.
[[nodiscard]] ErrorVerdict judge_error(const std::vector<RankBoard>& boards, const FailureReport& dead);

}  // namespace ddprun::coordinator
