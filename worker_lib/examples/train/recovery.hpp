#pragma once
// Checkpoints of a run: written every so many steps, and found again by the processes that come after a failure.

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "ddp/checkpoint.hpp"
#include "train/options.hpp"

namespace train {

/// What belongs to a run besides its tensors.
struct Run {
    double loss_first = 0;
    double loss_last = 0;
    std::uint64_t seed = 0;  ///< with the next two: what decides which samples come in which step
    std::uint64_t global_batch = 0;
    std::uint64_t text = 0;  ///< fingerprint
};

class Recovery {
public:
    /// Collective. Without a --checkpoint-dir nothing is ever saved. `run` and the tensors must outlive this.
    Recovery(const Options& options, ddp::Context& context, Run& run, std::vector<ddp::NamedBuffer> tensors);

    /// Collective. The step of the newest checkpoint, whose contents are in place then; 0 if there is none.
    /// Throws UserError if it belongs to a run with another model, seed, batch size or text.
    [[nodiscard]] std::size_t resume();

    /// Collective. After each step.
    void save_if_due(std::size_t step);

private:
    [[nodiscard]] std::vector<ddp::NamedBuffer> state();

    const Options& options_;
    ddp::Context& context_;
    Run& run_;
    std::array<double, 2> losses_{};
    std::array<std::uint64_t, 3> origin_{};
    std::vector<ddp::NamedBuffer> tensors_;
    std::optional<ddp::Checkpointer> checkpointer_;
};

}  // namespace train
