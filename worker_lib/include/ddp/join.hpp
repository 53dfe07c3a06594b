#pragma once
// Join: ranks with different numbers of batches finish an epoch together.
//
//     ddp::Join join(context.world(), reducer);
//     while (join.more(batches.has_next())) { …one step of training… }
//     reducer.sync_parameters(parameters, join.last_active());

#include <memory>

#include "ddp/process_group.hpp"
#include "ddp/reducer.hpp"

namespace ddp {

struct JoinOptions {
    enum class Early : std::uint8_t {
        Shadow,  ///< a rank without batches takes part in the others' backwards, with gradients of zero
        Throw,   ///< all ranks stop together: Error{InvalidArgument}, naming the ranks that have no batch left
    };
    Early early = Early::Shadow;
    /// Gradients are divided by all ranks, so that a batch counts the same in every step; false: by the ranks that
    /// still have batches.
    bool divide_by_initial = true;
};

/// All ranks use one, for the same steps. The reducer may be moved meanwhile, not destroyed. The loop may make no
/// collective calls of its own besides the reducer's: a rank without batches would not make them.
class Join {
public:
    /// Collective. `group` is the one that the reducer was made with; Error{InvalidArgument} if it has another size.
    Join(ProcessGroup& group, GradientReducer& reducer, JoinOptions options = {});
    ~Join();
    Join(const Join&) = delete;
    Join& operator=(const Join&) = delete;

    /// Before each step: has this rank a batch for it? Returns true when it has; one rank that has none shadows the
    /// steps of the others inside this call, and returns false on all ranks together, when nobody has any. `sync`:
    /// whether the step's one backward will be synchronised, the same on all ranks that have a batch: else all throw
    /// Error{Mismatch}. As long as the Join lives a begin_backward that does otherwise, without this call before it
    /// (the first one, too), or after it has returned false, throws Error{InvalidArgument}; so does this call when the
    /// backward that the last one announced was not made, and then the reducer is unusable on all ranks, for the others
    /// count on it. Costs one small exchange per step.
    [[nodiscard]] bool more(bool have_batch, bool sync = true);
    /// The lowest of the ranks that made the last step, from which the final model has to come. -1 before any step.
    [[nodiscard]] int last_active() const { return last_active_; }

private:
    std::unique_ptr<ProcessGroup> group_;
    GradientReducer::Impl& reducer_;
    const JoinOptions options_;
    int last_active_ = -1;
};

}  // namespace ddp
