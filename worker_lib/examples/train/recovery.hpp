#pragma once
// Recovery: writes the checkpoints of a run every few steps, and resumes from the newest one after a restart.

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "ddp/checkpoint.hpp"
#include "train/options.hpp"

namespace train {

/// The part of a run's state besides its tensors.
struct Run {
    double loss_first = 0;
    double loss_last = 0;
    std::uint64_t seed = 0;  ///< with the next two: decides the samples of each step
    std::uint64_t global_batch = 0;
    std::uint64_t text = 0;  ///< fingerprint
};

class Recovery {
public:
    /// Collective. Without --checkpoint-dir nothing is saved. `run` and the tensors must outlive this object.
    Recovery(const Options& options, ddp::Context& context, Run& run, std::vector<ddp::NamedBuffer> tensors);

    /// Loads the newest checkpoint and returns its step; 0 if there is none. Collective. Throws UserError if it belongs
    /// to a run with another model, seed, batch size or text.
    [[nodiscard]] std::size_t resume();

    /// Saves a checkpoint if one is due. Call it after each step. Collective.
    void save_if_due(std::size_t step);
    /// Saves a checkpoint unless that of this step is there. Returns whether there is one: not without
    /// --checkpoint-dir. Collective.
    bool save(std::size_t step);

private:
    [[nodiscard]] std::vector<ddp::NamedBuffer> state();

    const Options& options_;
    ddp::Context& context_;
    Run& run_;
    std::array<double, 2> losses_{};
    std::array<std::uint64_t, 3> origin_{};
    std::vector<ddp::NamedBuffer> tensors_;
    std::optional<ddp::Checkpointer> checkpointer_;
    std::optional<std::size_t> saved_;  ///< the newest step that was saved
};

}  // namespace train
