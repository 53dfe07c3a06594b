#pragma once
// Silence: the time for which each rank of a node has not signalled that it waits for messages, as seen by one wait. A
// rank that waits too long for others reports the silent ones first: see protocol/deadlines.hpp.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/clock.hpp"
#include "worker_lib/src/native/node/node_ranks.hpp"
#include "worker_lib/src/native/protocol/deadlines.hpp"

namespace ddp::detail {

class Silence {
public:
    /// Looks at all ranks at `now`, after a time `missed` in which the own rank did not run. Silence during it shows
    /// nothing.
    void update(const NodeRanks& ranks, ddprun::TimePoint now, ddprun::Duration missed);
    /// Returns whether the rank at `index` had been silent for kSilence at the last update(). Call update() first.
    [[nodiscard]] bool of(int index) const { return updated_ - since_[static_cast<std::size_t>(index)] >= kSilence; }

private:
    std::vector<std::uint64_t> counts_;
    std::vector<ddprun::TimePoint> since_;
    ddprun::TimePoint updated_;
};

}  // namespace ddp::detail
