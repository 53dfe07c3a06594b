#pragma once
// run: measures all rows that the options ask for, one after another.

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "worker_lib/bench/options.hpp"
#include "worker_lib/bench/report.hpp"

namespace ddp::bench {

/// Returns the elements of each row's call, ascending and unique: the sizes from min_bytes to max_bytes, rounded down
/// to a whole number of elements, and of parts if all ranks have equal ones (as nccl-tests does). {0} for barrier; none
/// when no size is large enough.
[[nodiscard]] std::vector<std::size_t> counts(Collective collective, const Options& options, int ranks);

/// Returns a text about the collectives without counts(), with the remedy; empty if there are none. Pure.
[[nodiscard]] std::string left_out(const Options& options, int ranks);

/// Appends to `rows` and calls `show` with each new row. Collective. Throws ddp::Error; `rows` then has the rows that
/// were measured before.
/// device   that of the group's buffers; null: they are in host memory
void run(ProcessGroup& group, const Options& options, detail::DeviceAccess* device, std::vector<Row>& rows,
         const std::function<void(const Row& row, bool first_of_collective)>& show);

}  // namespace ddp::bench
