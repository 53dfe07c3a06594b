#pragma once
// Diagnoses the end of the worker that stops its group: adds to its last activity (FailureReport::activity) which ranks
// waited for it. Its peers have failed because of that, or were stopped; their flight records still show their
// operations. Pure.

#include <string>
#include <vector>

#include "rendezvous/diagnosis/stall.hpp"
#include "rendezvous/protocol/messages.hpp"

namespace ddprun::diagnosis {

/// The diagnosis of a worker's end; both texts may be empty.
struct DeathVerdict {
    std::string text;  ///< "DEAD rank 3 (node b, killed by SIGKILL): in #183 …; ranks 0-2 (node a) waited for it there"
    std::string detail;  ///< the same without its head, for lines that name rank and end already
};

/// Returns whether a diagnosis is possible. It is not for a worker that writes no flight record, was never started, or
/// reports that it lost a peer.
[[nodiscard]] bool has_diagnosis(const FailureReport& failure);

/// Returns the operation that ended last on the worker; null: none has.
[[nodiscard]] const RecordedOperation* ended_last(const FlightRecord& view);

/// Returns the verdict on the end of `dead`. `records`: as for diagnose(), read after that end. Empty if the worker
/// ended because an operation had failed: then it was not the rank that kept the others waiting. Empty also if it was
/// no signal that ended it and no rank waited for it: then its own output says more.
[[nodiscard]] DeathVerdict diagnose_death(const std::vector<RankRecord>& records, const FailureReport& dead);

}  // namespace ddprun::diagnosis
