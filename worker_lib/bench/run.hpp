#pragma once
// All rows that the options ask for, one after another.

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "worker_lib/bench/options.hpp"
#include "worker_lib/bench/report.hpp"

namespace ddp::bench {

/// Elements of each row's call, ascending and each only once: the sizes from min_bytes to max_bytes, rounded down to a
/// whole number of elements, and of parts where all ranks have equal ones (as nccl-tests does). {0} for barrier;
/// none when no size is large enough.
[[nodiscard]] std::vector<std::size_t> counts(Collective collective, const Options& options, int ranks);

/// What has no counts(), why, and what to do; empty when all have some. Pure.
[[nodiscard]] std::string left_out(const Options& options, int ranks);

/// Collective. Appends to `rows` and calls `show` with each new one. Throws ddp::Error; `rows` has what was measured
/// before.
/// device   where the group's buffers are; null: on the host
void run(ProcessGroup& group, const Options& options, detail::DeviceAccess* device, std::vector<Row>& rows,
         const std::function<void(const Row& row, bool first_of_collective)>& show);

}  // namespace ddp::bench
