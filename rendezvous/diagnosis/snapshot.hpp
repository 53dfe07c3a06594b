#pragma once
// Describes the state of a job at this moment, whether it makes progress or not. Pure.

#include <chrono>
#include <string>
#include <vector>

#include "rendezvous/protocol/inspection.hpp"

namespace ddprun::diagnosis {

using namespace protocol;  // the diagnosis works on these messages

/// Returns one line: the verdict of diagnose(), if there is one. Otherwise the line names a deadline that has just
/// passed (it may be shorter than `min_wait`) and the ranks whose process is stopped. If there are none, it says that
/// the job makes progress, or that nothing is known.
[[nodiscard]] std::string diagnose_now(const std::vector<RankRecord>& records, std::chrono::seconds min_wait);

/// Returns one line if every worker in `records` that has not ended is stopped, so that the job would wait without end.
/// Empty: one of them is not stopped. Precondition: all workers of the job that are not in `records` have succeeded.
[[nodiscard]] std::string diagnose_left_behind(const std::vector<RankRecord>& records);

}  // namespace ddprun::diagnosis
