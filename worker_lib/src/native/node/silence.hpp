#pragma once
// Silence: the time for which each rank of a node has not signalled that it waits for messages, as seen by one wait. A
// rank that waits too long for others reports the silent ones first: see protocol/deadlines.hpp.

#include <cstdint>
#include <vector>

#include "common/clock.hpp"
#include "worker_lib/src/native/node/node_ranks.hpp"

namespace ddp::detail {

class Silence {
public:
    /// Looks at all ranks, after a time `missed` in which the own rank did not run. Silence during it shows nothing.
    void update(const NodeRanks& ranks, ddprun::Duration missed);
    /// Returns whether the rank at `index` has been silent for kSilence. Call it only after update().
    [[nodiscard]] bool of(int index) const;

private:
    std::vector<std::uint64_t> counts_;
    std::vector<ddprun::TimePoint> since_;
};

}  // namespace ddp::detail
