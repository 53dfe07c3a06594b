#pragma once
// Tally: what happened in many simulated runs together. A simulation in which nothing happens proves nothing.

#include <cstdint>
#include <map>
#include <string>

#include "tests/sim/cluster.hpp"

namespace ddprun::sim {

struct Tally {
    int runs = 0;
    std::map<protocol::Outcome, int> outcomes;
    int restarts = 0;
    int pauses = 0;
    int refusals = 0;
    int notified = 0;
    int agreements = 0;
    int freezes = 0;
    int stuck = 0;
    int orders = 0;
    int notices = 0;
    int overdue = 0;  ///< jobs that ended at the deadline of a notice
    int preempted_workers = 0;
    int requests = 0;
    int answers = 0;
    int diagnoses = 0;
    int conclusions = 0;
    int most_starts = 0;  ///< of groups within a minute

    void add(const SimCluster& cluster);
    /// Returns what happened too seldom in so many runs; empty: nothing.
    [[nodiscard]] std::string too_seldom() const;
    /// Returns all of it in one line.
    [[nodiscard]] std::string text() const;
};

/// Returns the broken invariant of a run that has ended, with the seed, the cluster and the last `lines` of the trace;
/// empty: none is broken.
[[nodiscard]] std::string finding(std::uint64_t seed, const SimCluster& cluster, std::size_t lines);

}  // namespace ddprun::sim
