#pragma once
// All rows that the options ask for, one after another.

#include <cstddef>
#include <functional>
#include <vector>

#include "worker_lib/bench/options.hpp"
#include "worker_lib/bench/report.hpp"

namespace ddp::bench {

/// Elements of each row's call, ascending and each only once: the sizes from min_bytes to max_bytes, rounded down to a
/// whole number of elements, and of parts where all ranks have equal ones (as nccl-tests does). {0} for barrier.
[[nodiscard]] std::vector<std::size_t> counts(Collective collective, const Options& options, int ranks);

/// Collective. Appends to `rows` and calls `show` with each new one. A collective that the group's backend does not
/// have gets one row that says so. Throws ddp::Error; `rows` has what was measured before.
void run(ProcessGroup& group, const Options& options, std::vector<Row>& rows,
         const std::function<void(const Row& row, bool first_of_collective)>& show);

}  // namespace ddp::bench
