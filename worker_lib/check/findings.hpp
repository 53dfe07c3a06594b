#pragma once
// Finds the odd nodes of a job: values that differ from those of most nodes, and values that break or slow
// down jobs. Pure; all thresholds are here.

#include <cstdint>
#include <string>
#include <vector>

#include "worker_lib/check/facts.hpp"

namespace ddp::check {

/// A rank has a few open files for each rank that it talks to; NCCL has several connections to its neighbours. Debian's
/// default of 1,024 is enough for small jobs, and 4,096 for all.
inline constexpr std::int64_t kOpenFilesPerRank = 32;
inline constexpr std::int64_t kMaxNeededOpenFiles = 4096;
/// Four times the 64 MiB that Docker gives by default, in which NCCL and the data loaders of PyTorch fail.
inline constexpr std::int64_t kNeededShmBytes = std::int64_t{256} << 20;
/// Certificates and file systems bear a second; more makes time stamps and logs of nodes contradict each other.
inline constexpr double kMaxClockSkewSeconds = 1;
/// The driver and its daemons take much less of an idle GPU.
inline constexpr std::int64_t kMaxIdleGpuBytes = std::int64_t{2} << 30;
/// A node below this part of the usual bandwidth has a bad cable, a slow port or a lost offload. Pairs across switches
/// of one network differ by less.
inline constexpr double kSlowNodePart = 0.5;

/// Sets Node::gbytes_per_s from the links: the median, of two middle values the larger one, because a slow partner is
/// no reason to call a node slow.
void set_medians(Cluster& cluster);

/// Returns the nodes whose bandwidths are compared: those that have one, and a machine of their own, because the nodes
/// of one machine share the CPUs that decide about it. Empty if there are fewer than three: two nodes have one link,
/// which cannot show the slow end.
[[nodiscard]] std::vector<const Node*> comparable_nodes(const Cluster& cluster);

/// Returns the findings: first those that name a broken node, then differences of settings.
[[nodiscard]] std::vector<Finding> find_problems(const Cluster& cluster);

}  // namespace ddp::check
