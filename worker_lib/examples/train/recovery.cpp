#include "train/recovery.hpp"

#include <fmt/format.h>

#include "ddp/ddp.hpp"
#include "train/user_error.hpp"

namespace train {

Recovery::Recovery(const Options& options, ddp::Context& context, Run& run, std::vector<ddp::NamedBuffer> tensors)
    : options_(options), context_(context), run_(run), tensors_(std::move(tensors)) {
    if (!options.checkpoint_dir.empty()) checkpointer_.emplace(options.checkpoint_dir, context);
}

std::vector<ddp::NamedBuffer> Recovery::state() {
    std::vector<ddp::NamedBuffer> all = tensors_;
    all.push_back({"run.losses", ddp::Buffer(losses_)});
    all.push_back({"run.origin", ddp::Buffer(origin_)});
    return all;
}

std::size_t Recovery::resume() {
    const auto step = checkpointer_ ? checkpointer_->latest() : std::nullopt;
    if (!step) return 0;
    try {
        checkpointer_->load(*step, state());
    } catch (const ddp::Error& error) {
        if (error.code() != ddp::ErrorCode::Mismatch) throw;
        throw UserError(context_.rank() == 0 ? error.what() : "");  // another model; every rank has the same text
    }
    const auto [seed, global_batch, text] = origin_;
    if (seed != run_.seed || global_batch != run_.global_batch || text != run_.text) {
        const std::string problem = fmt::format(
            "the checkpoints in {} are of a run with --seed {}, --global-batch {} and {} data. Pass the same to "
            "continue it, or another --checkpoint-dir to start a new run",
            options_.checkpoint_dir.string(), seed, global_batch,
            text == run_.text ? "the same training" : "different training");
        throw UserError(context_.rank() == 0 ? problem : "");
    }
    run_.loss_first = losses_[0];
    run_.loss_last = losses_[1];
    return *step;
}

void Recovery::save_if_due(std::size_t step) {
    if (!checkpointer_ || options_.checkpoint_every == 0) return;
    if (step % options_.checkpoint_every == 0 || step == options_.steps) save(step);
}

bool Recovery::save(std::size_t step) {
    if (!checkpointer_ || saved_ == step) return checkpointer_.has_value();
    losses_ = {run_.loss_first, run_.loss_last};
    origin_ = {run_.seed, run_.global_batch, run_.text};
    checkpointer_->save(step, state());
    saved_ = step;
    return true;
}

}  // namespace train
