#pragma once
// The tables on the terminal, and the same figures as JSON.

#include <map>
#include <string>
#include <vector>

#include "tests/bench/store/workload.hpp"

namespace ddprun::bench {

/// What one server did in one workload: rounds × metrics. `failure` says why there is nothing.
struct Series {
    std::vector<std::vector<double>> rounds;
    std::string failure;
};

struct Results {
    std::vector<std::string> servers;  ///< that took part, in the order of the columns
    std::map<std::string, Series> series;

    [[nodiscard]] double value(const std::string& server, std::size_t metric) const;
    /// The median over the rounds of `server`'s value over `reference`'s in the same round: drift cancels out.
    [[nodiscard]] double ratio(const std::string& server, const std::string& reference, std::size_t metric) const;
};

/// "at least 0.95 x echo's: 0.97, met"; says so when there is nothing to compare with.
[[nodiscard]] std::string verdict(const Goal& goal, const Results& results, std::size_t metric);

void print_machine(const std::vector<std::string>& server_lines);
void print_table(const Workload& workload, const Results& results);

struct Report {
    std::vector<std::string> server_lines;
    std::vector<std::pair<Workload, Results>> workloads;
};
void write_json(const std::string& path, const Report& report);

}  // namespace ddprun::bench
