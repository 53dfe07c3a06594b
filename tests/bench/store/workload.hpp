#pragma once
// A workload: what is done to each server in each round, what is measured, and what our server shall reach.

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tests/bench/store/servers.hpp"

namespace ddprun::bench {

/// What our server's value is held against: `bound`, or `bound` times the value of the server `reference`.
struct Goal {
    enum class Kind { kAtLeast, kAtMost };
    Kind kind;
    double bound;
    std::string reference;  ///< empty: `bound` itself is the goal
};
inline Goal at_least(double bound, std::string reference = {}) {
    return {Goal::Kind::kAtLeast, bound, std::move(reference)};
}
inline Goal at_most(double bound, std::string reference = {}) {
    return {Goal::Kind::kAtMost, bound, std::move(reference)};
}

struct Metric {
    std::string name;  ///< with its unit
    int decimals = 0;
    std::vector<Goal> goals = {};
};

inline constexpr double kNoValue = std::numeric_limits<double>::quiet_NaN();

struct Workload {
    std::string name;   ///< for --only
    std::string title;  ///< one line: what is done
    std::vector<Metric> metrics;
    /// One measurement: a value for each metric, kNoValue where the server cannot do it. Throws when the server fails.
    std::function<std::vector<double>(Server&)> measure;
    int most_rounds = 1000;
    bool fresh_server = false;  ///< a new server for each measurement
    bool plain_floor = false;   ///< the plain sender and receiver take part instead of echo
    bool gate_floor = false;    ///< the gate takes part beside echo
};

struct Scale {
    double seconds = 0.3;  ///< of one timed measurement
    bool quick = false;
};

[[nodiscard]] std::vector<Workload> all_workloads(const Scale& scale);

// The families, by the file that they are in.
void append_round_trips(std::vector<Workload>& all, const Scale& scale);
void append_streams(std::vector<Workload>& all, const Scale& scale);
void append_large_values(std::vector<Workload>& all, const Scale& scale);
void append_crowds(std::vector<Workload>& all, const Scale& scale);
void append_memory(std::vector<Workload>& all, const Scale& scale);
void append_fairness(std::vector<Workload>& all, const Scale& scale);

}  // namespace ddprun::bench
