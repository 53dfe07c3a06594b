#pragma once
// measure: times and checks the calls of one row of the table.

#include <cstddef>
#include <optional>

#include "worker_lib/bench/collective.hpp"
#include "worker_lib/bench/memory.hpp"
#include "worker_lib/bench/options.hpp"

namespace ddp::bench {

/// Times of the slowest rank in microseconds, the same on all ranks. On a device the calls are queued and waited for
/// together, as nccl-tests does: then there is only the mean.
struct Times {
    double mean = 0;
    std::optional<double> median = std::nullopt;
    std::optional<double> p99 = std::nullopt;
};

/// The result of one call, the same on all ranks.
struct Measured {
    Times us;
    std::size_t wrong = 0;  ///< wrong elements on all ranks
    bool checked = false;
};

/// Measures one call. Collective: every rank makes the same one.
[[nodiscard]] Measured measure(ProcessGroup& group, const Call& call, Memory& memory, const Options& options);

}  // namespace ddp::bench
