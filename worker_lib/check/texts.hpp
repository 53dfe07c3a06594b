#pragma once
// Names of many nodes, and facts in few characters, for tables and findings. Pure.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "worker_lib/check/facts.hpp"

namespace ddp::check {

/// Returns "n[1-6,8-64],gateway": names that differ in their last number only share it, as in SLURM's lists of hosts.
/// The order of the first names is kept.
[[nodiscard]] std::string node_ranges(const std::vector<std::string>& names);

/// The same in at most `max_bytes`, "n[1-2,4,…] (64 nodes)".
[[nodiscard]] std::string short_node_ranges(const std::vector<std::string>& names, std::size_t max_bytes);

/// Returns "141 GiB", "64.0 MiB".
[[nodiscard]] std::string bytes_text(std::int64_t bytes);

/// Returns "8 x NVIDIA H200 141 GiB", "none" for no GPU. GPUs of several models are listed by model.
[[nodiscard]] std::string gpus_text(const std::vector<Gpu>& gpus);

/// Returns "550.54.15 (CUDA 12.4)".
[[nodiscard]] std::string driver_text(const Node& node);

/// Returns "8 x 400 Gb/sec (4X NDR)", with ", 1 x DOWN" for each state but ACTIVE; "none" for no port.
[[nodiscard]] std::string rdma_text(const std::vector<RdmaPort>& ports);

/// Returns "100 Gbit/s", "1 Mbit/s".
[[nodiscard]] std::string speed_text(int mbit);

/// Returns a limit as a number, or "unlimited".
[[nodiscard]] std::string limit_text(const std::optional<std::int64_t>& limit);

}  // namespace ddp::check
