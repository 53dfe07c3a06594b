#pragma once
// Text: the bytes to learn from. Batches: the windows of the text that this rank trains on in each step. They depend on
// (seed, step, world size) alone, so a restarted run continues as before, and those of all ranks together are the same
// for every world size.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "ddp/ddp.hpp"
#include "model.hpp"
#include "support/options.hpp"

namespace train {

/// The bytes of one file after another.
struct Text {
    std::vector<std::uint8_t> bytes;
    std::uint64_t fingerprint = 0;  ///< of the bytes: ranks compare it, checkpoints keep it
};

/// Reads the files; without any, the licence texts that every Debian and Ubuntu machine has. Throws UserError.
[[nodiscard]] Text read_text(std::vector<std::filesystem::path> files);

/// Reads the files on every rank. Collective. Throws UserError on all ranks if one of them cannot read, or reads other
/// bytes than rank 0.
[[nodiscard]] Text read_same_text(const std::vector<std::filesystem::path>& files, ddp::Context& context);

class Batches {
public:
    /// Throws UserError, on all ranks alike, if the text is too short. Both arguments must outlive this object.
    Batches(const Text& text, const Options& options, int rank, int world_size);

    /// Returns this rank's share of a step's batch, valid until the next call. Steps count from 1. Shares differ by one
    /// window if the ranks do not divide the batch.
    [[nodiscard]] const Batch& of_step(std::size_t step);

private:
    const Text& text_;
    const Options& options_;
    std::size_t rank_, world_size_, steps_per_epoch_;
    std::optional<ddp::DistributedSampler> sampler_;
    std::size_t epoch_ = 0;
    std::vector<std::int64_t> starts_;  // of this rank's windows in the epoch
    Batch batch_;
};

}  // namespace train
