#pragma once
// The facts of a cluster as tables for people. Nodes that are equal in a table, and have the same findings there, share
// a row of it. Pure.

#include <string>
#include <vector>

#include "worker_lib/check/facts.hpp"

namespace ddp::check {

inline constexpr std::size_t kMaxColumns = 120;

/// Returns the tables of hosts, limits, network and GPUs, and lines about pairs and the all-reduce.
[[nodiscard]] std::string table_of(const Cluster& cluster, const std::vector<Finding>& findings);

/// Returns "all 64 nodes agree", or a line for each finding, with a line end.
[[nodiscard]] std::string verdict_of(const Cluster& cluster, const std::vector<Finding>& findings);

/// Returns "n7: driver 535.54; 63 nodes have 550.54. Install one version." without a line end.
[[nodiscard]] std::string finding_line(const Finding& finding);

}  // namespace ddp::check
