#pragma once
// GradientReducer: averages gradients over the ranks of a group while backward is still running.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "ddp/bucket_plan.hpp"
#include "ddp/buffer.hpp"
#include "ddp/comm_hook.hpp"
#include "ddp/export.hpp"
#include "ddp/process_group.hpp"
#include "ddp/types.hpp"

namespace DDP_EXPORT ddp {

/// The step at which the sum is divided by the number of ranks. Ignored if there is a hook, because hooks divide.
enum class Average : std::uint8_t {
    Auto,      ///< InReduce
    Pre,       ///< on each rank before it sends: no overflow in types of small range, but one rounding more
    Post,      ///< after the exchange
    InReduce,  ///< in the pass that adds: f16 and bf16 are divided in f32 and rounded once
};

/// How finish_backward treats a gradient that was not marked.
enum class UnusedPolicy : std::uint8_t {
    Error,  ///< as a mistake: the error names every such gradient
    /// As unused, as if mark_unused had been called. If some of its uses were marked, it is complete. Calls of
    /// mark_ready on other threads must have returned before finish_backward.
    Zero,
};

/// Options of a GradientReducer. The same on every rank, except `unused` and `on_bucket_done`.
struct ReducerOptions {
    /// The memory of the gradients. Nothing: that of the group, device memory on NCCL and host memory on the native
    /// backend. On NCCL Device::Cpu makes a native part of the group. Device::Cuda needs NCCL, else
    /// Error{InvalidArgument}.
    std::optional<Device> device = std::nullopt;
    BucketLimits limits = {};  ///< for the plan that is made here; the same on all ranks
    /// The plan of an earlier run (plan()), instead of one made from `limits`. It is never rebuilt.
    std::optional<BucketPlan> plan = std::nullopt;
    /// Makes a new plan after the first synchronised step, in the order in which rank 0's gradients became ready. If
    /// the plan differs, the views move once, inside the next begin_backward: call grad(i) in every step. Bound buffers
    /// do not move. Off by default, because a write to an old view would have no effect.
    bool rebuild = false;
    Average average = Average::Auto;            ///< the step at which the sum is divided
    UnusedPolicy unused = UnusedPolicy::Error;  ///< how finish_backward() treats a gradient that was not marked
    /// Finds out in each step which gradients no rank has used (BackwardResult::used). Costs one small all_reduce, for
    /// which finish_backward waits also where the gradients are device memory.
    bool find_unused = false;
    /// Compares the ranks' steps in each begin_backward, so that a difference is Error{Mismatch} at once, not at the
    /// deadline. For debugging: costs a round trip, for which begin_backward waits.
    bool check_every_step = false;
    std::shared_ptr<CommHook> hook = nullptr;  ///< replaces the all_reduce of a bucket
    /// Is called with each bucket once it holds averages, in launch order, on a thread of the reducer while backward
    /// goes on. Update the bucket's parameters here to overlap the optimiser as well. Its exceptions end the reducer as
    /// those of hooks do (comm_hook.hpp). Device memory: is called on the thread that completes a later bucket, or in
    /// finish_backward, when the averages are enqueued on GradBucket::stream. Enqueue the update there, and do not call
    /// the reducer.
    std::function<void(const GradBucket&)> on_bucket_done = nullptr;
};

/// Counts and times since a reducer was made.
struct ReducerStats {
    std::uint64_t steps = 0;  ///< synchronised backwards
    /// Synchronised backwards of which the averages are known to be right. Host memory: all. Device memory: those that
    /// the device has done, before the group failed. Save only what a confirmed step has made.
    std::uint64_t confirmed = 0;
    std::uint64_t bytes_reduced = 0;      ///< of the buckets; with compress() half of it travels
    std::chrono::nanoseconds backward{};  ///< begin_backward to finish_backward's return, summed; without sync too
    /// Part of `backward`: time in which finish_backward waited for communication. Scaling, copies, hooks and
    /// on_bucket_done do not count. Neither does mark_ready, although a bucket may be exchanged before it returns if
    /// ranks outnumber cores. Device memory: the time of the host, which does not wait for the device; use a profiler
    /// to see what the device's streams wait for.
    std::chrono::nanoseconds exposed{};
    std::size_t buckets_done = 0;    ///< exchanged buckets of the current backward, or of the last one
    std::uint64_t out_of_order = 0;  ///< buckets that were complete before their turn; if many, `rebuild` pays
};

/// The result of a backward.
struct BackwardResult {
    bool synchronised = false;  ///< the gradients are averages now
    /// With ReducerOptions::find_unused, one flag per parameter: any rank has used it since the previous synchronised
    /// backward. The gradient of an unused parameter is zero; an optimiser with momentum should skip it. Empty without
    /// find_unused, and after a backward without sync.
    std::vector<bool> used = {};
};

/// A step that GradientReducer::capture has made into a CUDA graph, which is freed with its last copy, or with its
/// reducer.
class CapturedStep {
public:
    /// Makes one that cannot be replayed.
    CapturedStep() = default;

private:
    friend class GradientReducer;
    struct State;
    explicit CapturedStep(std::shared_ptr<State> state) : state_(std::move(state)) {}
    std::shared_ptr<State> state_;
};

/// Averages gradients over the ranks of a group while backward is still running, as PyTorch's DistributedDataParallel
/// does. It owns the buckets of one model's gradients, and the group that reduces them. Gradients are views into the
/// buckets, so nothing is copied. One owner thread makes all calls but mark_ready and mark_unused, which any thread may
/// make.
///
///     reducer.begin_backward();
///     …compute gradient i into reducer.grad(i)…, then reducer.mark_ready(i);   // in any order; best: last layer first
///     reducer.finish_backward();                                               // all gradients are averages now
///
/// On a group of NCCL the gradients are device memory (ReducerOptions::device), and no call waits for the device. Each
/// takes a stream of that device, by default the legacy default stream; for host memory the streams mean nothing. A
/// mark declares that the gradient is complete once its stream has done what is enqueued there now. What is enqueued on
/// the stream of finish_backward afterwards sees the averages. The stream of begin_backward has to come after all that
/// has touched the gradients before, and other streams that compute gradients have to wait for it after the call.
/// Streams stay valid until finish_backward has returned. Outside of capture() a call on a stream that is being
/// captured into a CUDA graph throws Error{InvalidArgument}.
///
/// If the group fails, the device may go on with gradients that were never exchanged. They are zero then, and the word
/// of step_ok() is 0 from there on, so that an optimiser on the device can skip its step. The host learns of it from
/// the next call, and from ReducerStats::confirmed.
class GradientReducer {
    class Impl;

public:
    /// Splits a group of its own from `group`, so that the user's collectives cannot interleave. Collective. Throws
    /// Error{Mismatch} naming the ranks and the first parameter that differs.
    GradientReducer(ProcessGroup& group, std::vector<ParamSpec> params, ReducerOptions options = {});
    /// Frees the buckets, to which grad() has returned views. In a backward it aborts the reducer's group.
    ~GradientReducer();
    /// Leaves the other one unusable. The views stay valid.
    GradientReducer(GradientReducer&&) noexcept;

    /// Returns the memory of gradient i: params[i].count elements, a view into its bucket or the bound buffer. It is of
    /// Device::Cuda if the gradients are device memory.
    [[nodiscard]] Buffer grad(std::size_t i);
    /// Returns the same as a span of elements of T. Throws Error{InvalidArgument} if the parameter is of another type
    /// than T, or in device memory.
    template <Element T>
    [[nodiscard]] std::span<T> grad(std::size_t i) {
        const Buffer found = grad(i, dtype_of<T>);
        return {static_cast<T*>(found.data), found.count};
    }
    /// Sets all gradients to zero, also bound ones: before the first backward of several that accumulate. Not in a
    /// backward.
    void zero_grads(Stream stream = {});
    /// Binds gradient i to `external`, of the parameter's count, type and kind of memory: it is copied into the bucket
    /// when it is marked ready, and the average is copied back. `external` has to stay valid from then on. Call it
    /// between backwards, but not after one without sync, whose gradients would be lost.
    void bind(std::size_t i, Buffer external);

    /// Begins a backward. sync = false: no gradient is sent in it (gradient accumulation). Every rank makes the same
    /// sequence of backwards with and without sync; else both ranks get Error{Mismatch}, which calls the k-th backward
    /// step k. Views keep their contents from one backward to the next, so the caller accumulates: write into grad(i)
    /// in the first backward after a synchronised one, add to it in the following ones, and scale by their number.
    void begin_backward(bool sync = true, Stream stream = {});
    /// Declares gradient i complete; with ParamSpec::uses = k, the k-th call does. Launches every bucket that is full
    /// and whose turn has come. Throws Error{InvalidArgument} for one call too many in a backward. Any thread.
    void mark_ready(std::size_t i, Stream stream = {});
    /// Declares that gradient i takes no part in this backward. Its view and bound buffer are set to zero, or keep what
    /// earlier backwards without sync added. Throws Error{InvalidArgument} if it has been marked in this backward
    /// already. Any thread.
    void mark_unused(std::size_t i, Stream stream = {});
    /// Waits for all buckets; in device memory makes the stream wait, not the host. Throws Error{InvalidArgument}
    /// naming every parameter that was not marked. After an error the reducer is unusable, here and on the peers, which
    /// get Error{Aborted} or {PeerLost} instead of waiting.
    BackwardResult finish_backward(Stream stream = {});

    /// Captures a whole step into a CUDA graph, which replay() runs. `step` enqueues it on `stream`, not a default
    /// stream, and on streams that wait for it first and that it waits for at the end: forward, one synchronised
    /// backward with all its calls, the optimiser. Nothing of it is run. It must not allocate, wait for the device or
    /// for other ranks, and one thread makes all its calls. What it does on the host happens once, as on_bucket_done.
    /// Collective: all ranks capture then. Device memory only, after a synchronised backward (two with `rebuild`),
    /// without a hook, find_unused, Join, NoSync or accumulated gradients, and for one reducer of a process; else
    /// Error{InvalidArgument}, and nothing has happened. An exception of `step`, a step without a whole backward
    /// (InvalidArgument), and Error{System} when CUDA makes no graph of it, end the reducer as an error of
    /// finish_backward does.
    [[nodiscard]] CapturedStep capture(Stream stream, const std::function<void()>& step);
    /// Runs a captured step behind the work of `stream`, which goes on behind it. Counts as a synchronised backward:
    /// collective, compared with what the other ranks do, with the group's deadline, and with the errors of
    /// finish_backward. The graph reads and writes the addresses of its capture, so copy each batch to the same place.
    /// Waits while four replays are in flight. Not in a backward, under Join or NoSync, with accumulated gradients, or
    /// after another bind().
    void replay(const CapturedStep& step, Stream stream = {});

    /// While this guard lives, begin_backward() means begin_backward(false). Use it alike on all ranks.
    class NoSync {
    public:
        /// Begins it for a reducer, which may be moved meanwhile but must outlive the guard.
        explicit NoSync(GradientReducer& reducer);
        ~NoSync();
        NoSync(const NoSync&) = delete;
        NoSync& operator=(const NoSync&) = delete;

    private:
        Impl& reducer_;
    };
    /// Returns a NoSync for this reducer.
    [[nodiscard]] NoSync no_sync() { return NoSync(*this); }

    /// Broadcasts root's values and returns when they have arrived: call it once before training, with the parameters.
    /// Collective. Every rank passes buffers of the same types and counts in the same order, else Error{Mismatch} or
    /// {Timeout}. They may be anywhere in host memory or, on NCCL, in device memory: ready on `stream` then. Throws
    /// what a broadcast throws, and the values are then unspecified, except root's.
    void sync_parameters(List<Buffer> params, int root = 0, Stream stream = {});
    /// Throws Error{Mismatch} unless `params`, one buffer per parameter, hold the same bits on all ranks. Collective.
    /// It names the ranks, the first parameter that differs, and the first element with its values. Costs a pass over
    /// the memory and two all_reduces of 8 bytes per parameter. Device memory, ready on `stream`, is hashed there; only
    /// a parameter that differs is copied to the host.
    void verify_parameters(List<Buffer> params, Stream stream = {});

    /// Returns the bucket plan, the same on all ranks. Save it for ReducerOptions::plan. The owner's thread only. With
    /// `rebuild` a begin_backward after the first synchronised step may change the returned object, once.
    [[nodiscard]] const BucketPlan& plan() const;
    /// Returns statistics since this reducer was made. Any thread, also in a backward and after a failure.
    [[nodiscard]] ReducerStats stats() const;
    /// Returns a u32 in device memory: 1 as long as the averages are right, 0 from the first bucket on that was given
    /// up with its group. Read it behind finish_backward's stream. Empty for host memory, where finish_backward throws.
    [[nodiscard]] Buffer step_ok() const;

private:
    friend class Join;
    [[nodiscard]] Buffer grad(std::size_t i, DType type);
    std::unique_ptr<Impl> impl_;
};

}  // namespace ddp
