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

}  // namespace ddprun::coordinator
