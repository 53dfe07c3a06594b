#pragma once
// The training itself. Read trainer.cpp first: it is the tutorial of the library.

#include <cstddef>
#include <string>

#include "train/options.hpp"

namespace train {

struct Summary {
    int rank = 0;
    int world_size = 1;
    std::size_t steps = 0;
    double loss_first = 0;
    double loss_last = 0;
    double samples_per_s = 0;
    int restarts = 0;
};

/// Trains on all ranks that the launcher started. Throws UserError or ddp::Error.
[[nodiscard]] Summary train(const Options& options);

/// One line of JSON; a number that JSON cannot write becomes null.
[[nodiscard]] std::string to_json(const Summary& summary);

}  // namespace train
