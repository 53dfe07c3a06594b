#include "train/batches.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "train/user_error.hpp"

namespace train {
namespace {

/// Returns the number of windows with a next byte. Throws UserError, on all ranks alike.
std::size_t checked_windows(const Text& text, std::size_t context_bytes, std::size_t global_batch,
                            const ddp::Context& context) {
    const auto world_size = static_cast<std::size_t>(context.world_size());
    std::string problem;
    if (global_batch % world_size != 0) {
        problem = fmt::format("--global-batch {} cannot be shared by {} ranks. Pass a multiple of {}, such as {}",
                              global_batch, world_size, world_size, (global_batch / world_size + 1) * world_size);
    } else if (text.bytes.size() < context_bytes + global_batch) {
        problem = fmt::format(
            "the data in {} has {} bytes, but one step needs {} (--global-batch {} + --context {}). Pass more with "
            "--data, or a smaller --global-batch",
            text.source, text.bytes.size(), context_bytes + global_batch, global_batch, context_bytes);
    }
    if (!problem.empty()) throw UserError(context.rank() == 0 ? problem : "");
    return text.bytes.size() - context_bytes;
}

}  // namespace

Batches::Batches(const Text& text, std::size_t context_bytes, std::size_t global_batch, std::uint64_t seed,
                 ddp::Context& context)
    : text_(text),
      context_bytes_(context_bytes),
      local_batch_(global_batch / static_cast<std::size_t>(context.world_size())),
      steps_per_epoch_(checked_windows(text, context_bytes, global_batch, context) / global_batch),
      sampler_(text.bytes.size() - context_bytes, context.world_size(), context.rank(),
               {.seed = seed, .drop_last = true}) {
    start_epoch(0);
}

void Batches::start_epoch(std::size_t epoch) {
    epoch_ = epoch;
    sampler_.set_epoch(epoch);
    starts_ = sampler_.indices();
}

const Batch& Batches::of_step(std::size_t step) {
    const std::size_t epoch = (step - 1) / steps_per_epoch_;
    if (epoch != epoch_) start_epoch(epoch);
    const std::size_t first = (step - 1) % steps_per_epoch_ * local_batch_;
    batch_.contexts.resize(local_batch_ * context_bytes_);
    batch_.targets.resize(local_batch_);
    for (std::size_t i = 0; i < local_batch_; ++i) {
        const std::uint8_t* window = text_.bytes.data() + starts_[first + i];
        std::copy_n(window, context_bytes_, batch_.contexts.data() + i * context_bytes_);
        batch_.targets[i] = window[context_bytes_];
    }
    return batch_;
}

}  // namespace train
