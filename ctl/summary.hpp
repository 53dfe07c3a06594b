#pragma once
// What a dump says on the terminal. Pure.

#include <string>
#include <vector>

#include "rendezvous/coordinator/messages_inspect.hpp"

namespace ddprun::ctl {

/// One line for all ranks that do the same, then the verdict. Control characters that workers wrote are escaped.
/// `command`: of the job, if it is known.
[[nodiscard]] std::string summarize(const std::vector<coordinator::RankBoard>& boards,
                                    const coordinator::Inspected& end, const std::string& command = "");

}  // namespace ddprun::ctl
