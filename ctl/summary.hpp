#pragma once
// Formats a dump as text for the terminal. Pure.

#include <string>
#include <vector>

#include "rendezvous/protocol/inspection.hpp"

namespace ddprun::ctl {

/// Returns one line for all ranks in the same state, then the verdict. Control characters that workers wrote are
/// escaped. `command`: of the job, if it is known.
[[nodiscard]] std::string summarize(const std::vector<protocol::RankRecord>& records, const protocol::Inspected& end,
                                    const std::string& command = "");

}  // namespace ddprun::ctl
