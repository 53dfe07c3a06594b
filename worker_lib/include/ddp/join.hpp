#pragma once
// Join: lets ranks with different numbers of batches finish an epoch together.

#include <cstdint>
#include <memory>
#include <span>

#include "ddp/export.hpp"
#include "ddp/process_group.hpp"
#include "ddp/reducer.hpp"

namespace DDP_EXPORT ddp {

/// Options of a Join.
struct JoinOptions {
    /// The treatment of a rank without batches while others have some.
    enum class Early : std::uint8_t {
        Shadow,  ///< a rank without batches takes part in the others' backwards with gradients of zero
        Throw,   ///< all ranks throw Error{InvalidArgument} together, naming the ranks without a batch
    };
    Early early = Early::Shadow;  ///< what happens when the first rank has no batch left
    /// true: gradients are divided by the number of all ranks, so a batch counts the same in every step. false: by the
    /// number of ranks that still have batches.
    bool divide_by_initial = true;
};

/// What a rank announces for its next step beside whether it has a batch.
struct JoinStep {
    /// Whether the step's one backward will be synchronised. It must be the same on all ranks that have a batch.
    bool sync = true;
    /// Values to sum over the ranks with the same exchange, such as the loss and the number of samples of the step
    /// before. A rank with another number of them is Error{Mismatch}.
    std::span<double> sums{};
};

/// Lets ranks with different numbers of batches finish an epoch together, as PyTorch's Join context manager does.
///
///     ddp::Join join(context.world(), reducer);
///     while (join.more(batches.has_next())) { …one step of training… }
///     reducer.sync_parameters(parameters, join.last_active());
///
/// It decides whether each rank makes another step. All ranks use a Join for the same steps. The reducer may be moved
/// meanwhile, but not destroyed. The loop may make no collective calls but the reducer's, because a rank without
/// batches would not make them. The reducer's owner thread uses it.
class Join {
public:
    /// Begins the steps with `group`, the group that the reducer was made with. Collective. Throws
    /// Error{InvalidArgument} if it has another size.
    Join(ProcessGroup& group, GradientReducer& reducer, JoinOptions options = {});
    ~Join();
    Join(const Join&) = delete;
    Join& operator=(const Join&) = delete;

    /// Announces before each step whether this rank has a batch for it. Returns true if it has. Otherwise this rank
    /// shadows the steps of the others inside this call, until no rank has a batch: then it returns false on all ranks
    /// together. If ranks with a batch differ in `step.sync`, all throw Error{Mismatch}. Costs one small exchange per
    /// step.
    ///
    /// `step.sums` become the sums over all ranks; those of a rank that shadows become the sums over all exchanges of
    /// the call, in which its own values count once. So the results of all calls of an epoch add up to the same totals
    /// on every rank.
    ///
    /// While the Join lives, begin_backward throws Error{InvalidArgument} if this call did not announce it, announced
    /// the other kind, or returned false. This call throws Error{InvalidArgument} if the announced backward was not
    /// made. The reducer is then unusable on all ranks, because the others wait for that backward.
    [[nodiscard]] bool more(bool have_batch, JoinStep step = {});
    /// Returns the lowest rank that made the last step: the final model has to come from it. -1 before any step.
    [[nodiscard]] int last_active() const { return last_active_; }

private:
    std::unique_ptr<ProcessGroup> group_;
    GradientReducer::Impl& reducer_;
    const JoinOptions options_;
    int last_active_ = -1;
};

}  // namespace ddp
