#pragma once
// Diagnoses an operation that has failed by its deadline. By the time the daemon knows, the peers have failed too, late
// ranks have arrived, and processes have ended. The flight records are therefore rewound to the moment before. Pure.

#include <chrono>
#include <functional>
#include <vector>

#include "rendezvous/diagnosis/stall.hpp"

namespace ddprun::diagnosis {

/// After a group has failed, every operation of it ends within this time: a rank whose peer is itself waiting gets up
/// to 3 s more (worker_lib's native/protocol/deadlines.hpp; a test compares).
inline constexpr std::chrono::nanoseconds kTogether = std::chrono::seconds(4);

/// Returns the flight records as they were `by` earlier: an operation that had been called by then and has ended since
/// is in progress again. Operations that a record has overwritten stay lost. RankRecord::ended_ago is shown, and stays.
[[nodiscard]] std::vector<RankRecord> rewind(std::vector<RankRecord> records, std::chrono::nanoseconds by);

/// Returns whether the verdict is new to the agents. Called for one verdict after the other until it returns true.
using IsNews = std::function<bool(const StallVerdict&)>;

/// Returns the verdict on the first deadline that passed in the last `recent`, or kRecentTimeout if that is less: which
/// ranks kept the others waiting. Deadlines that the flight records do not explain, or whose verdict is not new, are
/// skipped. `records`: as for diagnose(), read at about the same time. kNone: no such deadline.
[[nodiscard]] StallVerdict diagnose_timeout(const std::vector<RankRecord>& records,
                                            std::chrono::nanoseconds recent = kRecentTimeout,
                                            const IsNews& is_news = {});

}  // namespace ddprun::diagnosis
