#pragma once
// Prints rows as the table of nccl-tests, one at a time as they are measured, and as JSON. Pure.

#include <optional>
#include <string>
#include <vector>

#include "worker_lib/bench/collective.hpp"
#include "worker_lib/bench/measure.hpp"

namespace ddp::bench {

/// One row of the table.
struct Row {
    Call call;
    std::size_t bytes = 0;
    std::optional<Measured> out_of_place = std::nullopt;
    std::optional<Measured> in_place = std::nullopt;
};

/// Return GB/s (1e9 bytes per second), as doc/PERFORMANCE.md of nccl-tests defines them.
[[nodiscard]] double algorithm_bandwidth(const Row& row, const Measured& measured);
[[nodiscard]] double bus_bandwidth(const Row& row, const Measured& measured);

[[nodiscard]] std::string table_head(Collective collective, const std::string& about);
[[nodiscard]] std::string table_row(const Row& row);
/// Returns "# wrong values: 0; mean bus bandwidth: 3.21 GB/s"; the mean is that of the rows with a size.
[[nodiscard]] std::string table_foot(const std::vector<Row>& rows);

/// Returns {"version", "about", "ranks", "error", "rows": [{"collective", "bytes", …, "out_of_place": {"mean_us", …},
/// "in_place": …}]}. `error` ended the run early; an empty one becomes null.
[[nodiscard]] std::string to_json(const std::vector<Row>& rows, const std::string& about, int ranks,
                                  const std::string& error);

[[nodiscard]] std::size_t wrong_values(const std::vector<Row>& rows);

}  // namespace ddp::bench
