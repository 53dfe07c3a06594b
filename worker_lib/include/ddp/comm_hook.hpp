#pragma once
// CommHook: exchanges the buckets of a GradientReducer instead of its all_reduce. compress() makes one.

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "ddp/bucket_plan.hpp"
#include "ddp/buffer.hpp"
#include "ddp/export.hpp"
#include "ddp/process_group.hpp"
#include "ddp/types.hpp"

namespace DDP_EXPORT ddp {

/// A bucket as hooks and callbacks see it. The views are valid during the call.
struct GradBucket {
    /// One gradient of the bucket.
    struct Gradient {
        std::size_t param = 0;  ///< its index at registration
        Buffer values;          ///< a view into `buffer`
    };
    std::size_t index = 0;  ///< in launch order, the same on all ranks
    bool last = false;      ///< no bucket of the plan comes after it
    Buffer buffer;          ///< all gradients and the padding between them, in the group's arena
    /// Device memory: enqueue here what reads or writes the bucket, and pass it as OpOptions::stream. The bucket is
    /// ready on it, and what follows waits for it. Null for host memory.
    Stream stream{};
    std::span<const Gradient> gradients;  ///< in the order of their offsets
};

/// Exchanges the buckets of a GradientReducer instead of its all_reduce; compress() makes one.
///
///     ddp::GradientReducer reducer(group, params, {.hook = ddp::compress(ddp::DType::BF16)});
///
/// Each reducer needs an object of its own. A hook may pass its calls on to another hook, before or
/// after work of its own, but must not call the reducer. An exception of any type ends the reducer: mark_ready or
/// finish_backward throws it here, and the peers get Error{Aborted} with its text, in this backward or, if theirs has
/// ended, in the next.
class CommHook {
public:
    virtual ~CommHook() = default;
    /// Prepares for a plan: called before the first backward, and again when the plan has changed. Collective.
    virtual void prepare(ProcessGroup& group, const BucketPlan& plan) = 0;
    /// Starts the exchange of a bucket that is complete on this rank, over the prepared group, with the same calls on
    /// all ranks. Called for one bucket at a time, in launch order, on the thread that completed it. Marks of other
    /// threads wait meanwhile: do lengthy work in complete(). The prepared group, and those that a hook splits from it,
    /// accept calls of any thread.
    virtual Work launch(const GradBucket& bucket) = 0;
    /// Leaves the average over all ranks in the bucket, once the work that launch() returned is done. Called for one
    /// bucket at a time, in launch order, on a thread of the reducer, while other buckets are in flight. Device memory:
    /// called within a later mark_ready or in finish_backward, and bucket.stream waits for the work: enqueue the rest
    /// there.
    virtual void complete(const GradBucket& bucket) = 0;
    /// Aborts the groups that the hook has made, because the reducer has failed on this rank, or is destroyed in the
    /// middle of a backward: the peers, and complete() on this rank, may be waiting in them. The reducer aborts the
    /// prepared group itself. Called on any thread, also while complete() runs. Must neither wait nor throw.
    virtual void abort(std::string_view reason) { static_cast<void>(reason); }
    /// Forgets the group of prepare(), whose memory is about to be freed with the reducer. Another reducer may get the
    /// hook after that.
    virtual void release() {}
};

/// Options of compress().
struct CompressOptions {
    /// Adds the rounding error of this rank's gradient to that of the next step (error feedback: Seide et al. 2014,
    /// Karimireddy et al. 2019). The rounding of the average, which is the same on all ranks, is not compensated. Costs
    /// as much memory as the gradients. The residuals end with the reducer and are not part of a checkpoint.
    bool error_feedback = false;
};

/// Returns a hook that sends f32 gradients as f16 or bf16, half the bytes. They are summed in f32 and rounded once,
/// after the division, so the sum of many ranks does not overflow. Buckets of other types are sent unchanged. Values
/// beyond f16's maximum of 65,504 become infinite. Throws Error{InvalidArgument} for another wire type.
[[nodiscard]] std::shared_ptr<CommHook> compress(DType wire_type, CompressOptions options = {});

}  // namespace ddp
