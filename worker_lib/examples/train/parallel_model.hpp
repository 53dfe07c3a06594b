#pragma once
// ParallelModel: the model with its optimiser, as the ranks train it together. Each rank has all of it
// (replicated.cpp), or each keeps a part (sharded.cpp). The trainer knows no more of the difference.

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "ddp/ddp.hpp"
#include "model.hpp"
#include "support/options.hpp"
#include "support/progress.hpp"

namespace train {

class ParallelModel {
public:
    virtual ~ParallelModel() = default;

    /// Returns a text such as "3936512 parameters in 5 buckets".
    [[nodiscard]] virtual std::string description() const = 0;
    /// Returns what a checkpoint holds: this rank's part of the parameters, then of the optimiser's arrays. The names
    /// and shapes are the same for all models, so each resumes from the checkpoints of the others.
    [[nodiscard]] virtual std::vector<ddp::NamedShard> state() = 0;
    /// Returns the stream of all work; that of host memory, which has none, is {}.
    [[nodiscard]] virtual ddp::Stream stream() const { return {}; }

    /// Computes the gradients of this rank's share of a batch, and begins to average them with those of the other
    /// ranks. Returns the sum over the share of -log p(target), in nats.
    [[nodiscard]] virtual double compute(const Batch& batch, Progress& progress) = 0;
    /// Waits until the gradients are averages. On a GPU the stream waits.
    virtual void finish_backward() = 0;
    /// Makes one step of the optimiser. `step` counts from 1.
    virtual void update(float rate, std::size_t step) = 0;
    /// Waits until all steps are done. Throws ddp::Error if one of them had no right averages.
    virtual void wait() {}
};

/// Makes the model on every rank, whole. Collective. Throws UserError, on all ranks alike, if one of them has no CUDA
/// driver or no cuBLAS. `options` and `context` must outlive it.
[[nodiscard]] std::unique_ptr<ParallelModel> make_replicated_model(const Options& options, ddp::Context& context);
/// Makes the model in parts. Collective.
[[nodiscard]] std::unique_ptr<ParallelModel> make_sharded_model(const Options& options, ddp::Context& context);
/// Returns a table of the memory that the model in parts needs on each rank. Collective: makes the model to know it.
[[nodiscard]] std::string memory_plan(const Options& options, ddp::Context& context);

/// Returns the average number of windows that a rank has in a step. Each rank divides its gradients by that and not by
/// its own number, so that the average of all ranks is the mean of the batch.
[[nodiscard]] inline double average_share(const Options& options, const ddp::Context& context) {
    return static_cast<double>(options.global_batch) / context.world_size();
}

}  // namespace train
