#pragma once
// Flight records of simulated workers.

#include <string>

#include "rendezvous/protocol/inspection.hpp"
#include "tests/sim/timeline.hpp"

namespace ddprun::sim {

/// Returns the record of a worker that waits in a barrier, has failed in one, or has not called it; now and then the
/// worker is stopped.
[[nodiscard]] protocol::RankRecord random_record(Dice& dice, Rank rank, const std::string& host);

}  // namespace ddprun::sim
