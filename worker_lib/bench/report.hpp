#pragma once
// The table of nccl-tests, a row at a time as it is measured, and the same as JSON.

#include <optional>
#include <string>
#include <vector>

#include "worker_lib/bench/collective.hpp"
#include "worker_lib/bench/measure.hpp"

namespace ddp::bench {

struct Row {
    Call call;
    std::size_t bytes = 0;
    std::optional<Measured> out_of_place = std::nullopt;
    std::optional<Measured> in_place = std::nullopt;
};

/// Bytes per nanosecond: 1e9 bytes per second.
[[nodiscard]] double algorithm_bandwidth(const Row& row, const Measured& measured);
[[nodiscard]] double bus_bandwidth(const Row& row, const Measured& measured);

[[nodiscard]] std::string table_head(Collective collective, const std::string& about);
[[nodiscard]] std::string table_row(const Row& row);
/// "# wrong values: 0; mean bus bandwidth: 3.21 GB/s", of the rows that carry anything.
[[nodiscard]] std::string table_foot(const std::vector<Row>& rows);

/// {"version", "about", "ranks", "error", "rows": [{"collective", "bytes", …, "out_of_place": {"mean_us", …},
/// "in_place": …}]}. `error`: what ended the run before all was measured; null there if it is empty.
[[nodiscard]] std::string to_json(const std::vector<Row>& rows, const std::string& about, int ranks,
                                  const std::string& error);

[[nodiscard]] std::size_t wrong_values(const std::vector<Row>& rows);

}  // namespace ddp::bench
