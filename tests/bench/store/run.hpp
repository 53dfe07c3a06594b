#pragma once
// Runs the workloads: in each round every server in turn, so that what drifts on the machine drifts for all.

#include "tests/bench/store/report.hpp"

namespace ddprun::bench {

struct RunOptions {
    ServerOptions servers;
    Scale scale;
    int rounds = 5;
    std::vector<std::string> only;
    std::vector<std::string> without;
};

[[nodiscard]] Report run(const RunOptions& options);

}  // namespace ddprun::bench
