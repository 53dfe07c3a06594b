#pragma once
// Recovery: writes the checkpoints of a run every few steps, and resumes from the newest one after a restart.

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "ddp/ddp.hpp"
#include "support/options.hpp"
#include "support/user_error.hpp"

namespace train {

class Recovery {
public:
    /// Collective. Without --checkpoint-dir nothing is saved. `state` is this rank's part of what is saved and loaded,
    /// so its memory must outlive this object; `stream` is the one on which device memory is ready. `text`: the
    /// fingerprint of the data.
    Recovery(const Options& options, ddp::Context& context, std::uint64_t text, std::vector<ddp::NamedShard> state,
             ddp::Stream stream)
        : options_(options),
          rank_(context.rank()),
          stream_(stream),
          origin_{options.seed, options.global_batch, text},
          state_(std::move(state)) {
        state_.push_back({"run.origin", {origin_.size()}, 0, origin_});
        if (!options.checkpoint_dir.empty()) checkpointer_.emplace(options.checkpoint_dir, context);
    }

    /// Loads the newest checkpoint and returns its step; 0 if there is none. Collective. Throws UserError on all ranks
    /// if it belongs to a run with another model, seed, batch size or text.
    [[nodiscard]] std::size_t resume() {
        const auto step = checkpointer_ ? checkpointer_->latest() : std::nullopt;
        if (!step) return 0;
        const auto origin = origin_;
        try {
            checkpointer_->load(*step, state_, stream_);
        } catch (const ddp::Error& error) {
            if (error.code() != ddp::ErrorCode::Mismatch) throw;
            // Another model or optimiser; every rank has the same text.
            throw UserError(
                rank_ == 0 ? concat(error.what(), ". Pass the --optimizer, --hidden1 and --hidden2 of that run") : "");
        }
        if (origin_ == origin) return *step;
        if (rank_ != 0) throw UserError("");
        throw UserError(concat("the checkpoints in ", options_.checkpoint_dir.string(), " are of a run with --seed ",
                               origin_[0], ", --global-batch ", origin_[1], " and ",
                               origin_[2] == origin[2] ? "the same" : "different",
                               " training data. Pass the same to continue it, or another --checkpoint-dir to start a "
                               "new run"));
    }

    /// Returns whether a checkpoint is due after this step.
    [[nodiscard]] bool is_due(std::size_t step) const {
        return checkpointer_ && options_.checkpoint_every > 0 &&
               (step % options_.checkpoint_every == 0 || step == options_.steps);
    }
    /// Saves a checkpoint, but each step once. Returns false without --checkpoint-dir. Collective.
    bool save(std::size_t step) {
        if (!checkpointer_) return false;
        if (step != saved_) checkpointer_->save(step, state_, stream_);
        saved_ = step;
        return true;
    }

private:
    const Options& options_;
    int rank_;
    ddp::Stream stream_;
    std::array<std::uint64_t, 3> origin_;  ///< seed, batch size and text: they decide the samples of each step
    std::vector<ddp::NamedShard> state_;
    std::optional<ddp::Checkpointer> checkpointer_;
    std::size_t saved_ = 0;  ///< the newest step that was saved
};

}  // namespace train
