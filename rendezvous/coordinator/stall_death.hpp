#pragma once
// The verdict on a worker whose end stops its group: what it was in, and who waited for it. Peers have failed of that,
// or were stopped, before anybody could ask them; their boards still say what they were in. Pure.

#include <string>
#include <vector>

#include "rendezvous/coordinator/messages.hpp"
#include "rendezvous/coordinator/stall.hpp"

namespace ddprun::coordinator {

struct DeathVerdict {
    std::string text;  ///< "DEAD rank 3 (node b, killed by SIGKILL): in #183 …; ranks 0-2 (node a) waited for it there"
    std::string detail;  ///< the same without its head, for where rank and end are named already
};

/// Whether there may be something to tell: not about a worker that writes no board, was never started, or says that it
/// failed because a peer was gone.
[[nodiscard]] bool may_be_judged(const FailureReport& failure);

/// The operation whose end the worker saw last, null: none yet.
[[nodiscard]] const BoardOperation* ended_last(const BoardView& view);

/// `boards`: as in judge(), read after the end of `dead`. Empty when that ended because an operation had failed: then
/// it was not the one that kept the others waiting.
[[nodiscard]] DeathVerdict judge_death(const std::vector<RankBoard>& boards, const FailureReport& dead);

}  // namespace ddprun::coordinator
