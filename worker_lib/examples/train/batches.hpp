#pragma once
// Which windows of the text this rank trains on in which step. Depends on (seed, step, world size) alone, so that a
// restarted run goes on where it was; and the ranks' windows of a step are together the same for every world size.

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
    /// outlive this.
    Batches(const Text& text, std::size_t context_bytes, std::size_t global_batch, std::uint64_t seed,
            ddp::Context& context);

    /// This rank's share of a step's batch; steps count from 1. The result stays valid until the next call.
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
