#pragma once
// BackwardStatistics: counts and times of a reducer's backwards (ReducerStats). The reducer's mutex guards every change
// of stats().

#include <cstddef>
#include <cstdint>

#include "common/clock.hpp"
#include "ddp/reducer.hpp"

namespace ddp::detail {

class BackwardStatistics {
public:
    /// Returns the number of the backward that begins, from 1. The owner's thread.
    std::uint64_t count_backward() { return ++backwards_; }
    void begin(ddprun::TimePoint now) { began_ = now; }
    void count_out_of_order() { ++stats_.out_of_order; }
    void end(ddprun::TimePoint now) { stats_.backward += now - began_; }
    /// Counts a synchronised backward. `exposed`: the time for which finish_backward waited for communication.
    void count_step(std::size_t bytes, ddprun::Duration exposed) {
        ++stats_.steps;
        stats_.bytes_reduced += bytes;
        stats_.exposed += exposed;
    }

    [[nodiscard]] ddprun::TimePoint began() const { return began_; }
    /// Returns how many synchronised backwards have ended.
    [[nodiscard]] std::uint64_t steps() const { return stats_.steps; }
    [[nodiscard]] const ReducerStats& stats() const { return stats_; }

private:
    std::uint64_t backwards_ = 0;
    ddprun::TimePoint began_;
    ReducerStats stats_;
};

}  // namespace ddp::detail
