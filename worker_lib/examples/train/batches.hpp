#pragma once
// Batches: chooses the windows of the text that this rank trains on in each step. They depend on (seed, step, world
// size) alone, so a restarted run continues as before. All ranks' windows of a step together are the same for every
// world size.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ddp/context.hpp"
#include "ddp/sampler.hpp"
#include "train/model.hpp"
#include "train/text.hpp"

namespace train {

class Batches {
public:
    /// Throws UserError, on all ranks alike, if the batch cannot be divided or the text is too short. `text` must
    /// outlive this object.
    Batches(const Text& text, std::size_t context_bytes, std::size_t global_batch, std::uint64_t seed,
            ddp::Context& context);

    /// Returns this rank's share of a step's batch, valid until the next call. Steps count from 1.
    [[nodiscard]] const Batch& of_step(std::size_t step);

private:
    void start_epoch(std::size_t epoch);

    const Text& text_;
    std::size_t context_bytes_;
    std::size_t local_batch_;
    std::size_t steps_per_epoch_;
    ddp::DistributedSampler sampler_;
    std::size_t epoch_ = 0;
    std::vector<std::int64_t> starts_;  // of this rank's windows in the epoch
    Batch batch_;
};

}  // namespace train
