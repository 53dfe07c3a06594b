#pragma once
// What ddp-bench measures.

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
    DType dtype = DType::f32;
    ReduceOp reduce_op = ReduceOp::Sum;
    int root = 0;
    bool check = true;
    bool foreign = false;  ///< buffers of the program's own, instead of the group's arena
    bool rewrite = false;  ///< each rank writes its input anew before every call, as backward does
    Backend backend = Backend::Auto;
    std::string json_file;  ///< empty: none; "-": stdout, instead of the table
};

/// The exit code when there is nothing to measure: help was asked for, or an option is wrong. `speaks`: this rank
/// prints. `ranks`: how many there will be; 0: that is not known.
[[nodiscard]] std::optional<int> parse_options(int argc, char** argv, bool speaks, int ranks, Options& options);

}  // namespace ddp::bench
