#pragma once
// Hooks: how a bucket of gradients is exchanged, in the place of the plain all_reduce. Given to a GradientReducer.
//
//     ddp::GradientReducer reducer(group, params, {.hook = ddp::compress(ddp::DType::bf16)});

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "ddp/bucket_plan.hpp"
#include "ddp/process_group.hpp"
#include "ddp/types.hpp"

namespace ddp {

/// A bucket as hooks and callbacks see it. The views stay valid while the call lasts.
struct GradBucket {
    struct Gradient {
        std::size_t param = 0;  ///< its index at registration
        Buffer values;          ///< a view into `buffer`
    };
    std::size_t index = 0;  ///< in launch order, which is the same on all ranks
    bool last = false;      ///< no bucket of the plan comes after it
    Buffer buffer;          ///< all gradients and the padding between them, in the group's arena
    std::span<const Gradient> gradients;
};

/// One object per reducer. A hook may pass its calls on to another one, before or after work of its own; it must not
/// call the reducer. What it throws, of whatever type, ends the reducer: mark_ready or finish_backward throws it here,
/// and the peers get Error{Aborted} with its text, in this backward or, where that has ended already, in the next.
class CommHook {
public:
    virtual ~CommHook() = default;
    /// Before the first backward, and again when the plan has changed. Collective: all ranks come here.
    virtual void prepare(ProcessGroup& group, const BucketPlan& plan) = 0;
    /// The bucket is complete here: starts its exchange over the prepared group, with the same calls on all ranks. One
    /// bucket at a time, in launch order, on the thread that completed it, while other threads' marks wait: long work
    /// is better done by complete().
    virtual Work launch(const GradBucket& bucket) = 0;
    /// The work that launch() gave is done: leaves the average over all ranks in the bucket. One bucket at a time, in
    /// launch order, on a thread of the reducer's, while others are in flight.
    virtual void complete(const GradBucket& bucket) = 0;
    /// The reducer has gone, and its group with all memory of it goes: what prepare() was given is used no more.
    /// Another reducer may have the hook after that.
    virtual void release() {}
};

struct CompressOptions {
    /// What rounding loses of this rank's gradient is added to that of the next step. The average is rounded once more,
    /// the same on all ranks, and that is not made up for. Kept per parameter, in its own type: costs as much memory
    /// as the gradients. Lost when the reducer goes; a checkpoint does not hold it.
    bool error_feedback = false;
};

/// Gradients of f32 travel as f16 or bf16: half the bytes. Summed in f32 and rounded once, after the division, so that
/// the sum of many ranks does not overflow. Buckets of other types travel as they are. f16 has no room beyond 65,504:
/// larger gradients become infinite. Throws Error{InvalidArgument} for another type.
[[nodiscard]] std::shared_ptr<CommHook> compress(DType wire_type, CompressOptions options = {});

}  // namespace ddp
