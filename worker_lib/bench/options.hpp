#pragma once
// The command line of ddp-bench.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "ddp/types.hpp"
#include "worker_lib/bench/collective.hpp"

namespace ddp::bench {

struct Options {
    std::vector<Collective> collectives = {Collective::kAllReduce};
    std::size_t min_bytes = 8;
    std::size_t max_bytes = std::size_t{64} << 20;
    double factor = 2;
    std::size_t iterations = 20;
    std::size_t warm_up = 5;
    DType dtype = DType::F32;
    ReduceOp reduce_op = ReduceOp::Sum;
    int root = 0;
    bool check = true;
    bool foreign = false;  ///< buffers are memory of this process, not of the group's arena
    /// Each rank rewrites its input before every call, as backward does. Not given: from kRewriteFrom on, in host
    /// memory.
    std::optional<bool> rewrite{};
    Backend backend = Backend::Auto;
    std::string json_file;  ///< empty: none; "-": stdout, instead of the table
};

/// Smaller inputs stay in the cache of the core that wrote them, and the time of a call hardly depends on it.
inline constexpr std::size_t kRewriteFrom = std::size_t{64} << 10;

/// Fills `options`, or returns the exit code when there is nothing to measure: after --help, or for a wrong option.
/// `speaks`: this rank prints. `ranks`: the number of ranks; 0: not known.
[[nodiscard]] std::optional<int> parse_options(int argc, char** argv, bool speaks, int ranks, Options& options);

}  // namespace ddp::bench
