#pragma once
// train: the training itself. Read main.cpp and trainer.cpp first: they are the tutorial of the library.

#include <cstddef>

#include "ddp/ddp.hpp"
#include "support/options.hpp"

namespace train {

/// The result of a training, as stdout shows it.
struct Summary {
    std::size_t steps = 0;
    double loss_first = 0;
    double loss_last = 0;
    double rate = 0;
    double samples_per_s = 0;
    double exposed_ms = 0;   ///< communication per step that backward did not hide: see Progress
    bool preempted = false;  ///< it has stopped after `steps` because of a notice
};

/// Trains with the given options. Collective: every rank of the job calls it. Throws UserError or ddp::Error.
[[nodiscard]] Summary train(const Options& options, ddp::Context& context);

}  // namespace train
