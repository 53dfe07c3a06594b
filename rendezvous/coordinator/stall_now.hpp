#pragma once
// What is said about a job to somebody who looks at it, whether it stands still or not. Pure.

#include <chrono>
#include <string>
#include <vector>

#include "rendezvous/coordinator/messages_inspect.hpp"

namespace ddprun::coordinator {

/// One line: the verdict of judge(), and if there is none a deadline that has just passed, for a job's deadlines may be
/// shorter than `patience`, and who is stopped, for whom nobody may have waited so long; or else that the job goes on,
/// or that nothing is known of it.
[[nodiscard]] std::string judge_now(const std::vector<RankBoard>& boards, std::chrono::seconds patience);

/// All other workers of the job have ended well: what is said if those of `boards` that have not are all stopped, so
/// that the job would wait for them in silence and for ever. Empty: one of them goes on, or is not known.
[[nodiscard]] std::string judge_left_behind(const std::vector<RankBoard>& boards);

}  // namespace ddprun::coordinator
