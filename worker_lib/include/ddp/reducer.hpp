#pragma once
// GradientReducer: averages gradients over the ranks of a group while backward is still running. It owns the buckets;
// gradients are views into them, so nothing is copied. On native groups (host memory) so far. One object, one owner
// thread, except mark_ready (any thread).
//
//     reducer.begin_backward();
//     …compute gradient i into reducer.grad(i)…, then reducer.mark_ready(i);   // in any order; best: last layer first
//     reducer.finish_backward();                                               // all gradients are averages now

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "ddp/bucket_plan.hpp"
#include "ddp/comm_hook.hpp"
#include "ddp/process_group.hpp"
#include "ddp/types.hpp"

namespace ddp {

/// Where the sum is divided by the number of ranks. With a hook the hook divides, and this is not looked at.
enum class Average : std::uint8_t {
    Auto,      ///< InReduce
    Pre,       ///< each rank divides before it sends: no overflow in types of little range, but rounded once more
    Post,      ///< after the exchange
    InReduce,  ///< in the pass that adds: f16 and bf16 are divided in f32 and rounded once
};

/// What a gradient is that nobody marked before finish_backward.
enum class UnusedPolicy : std::uint8_t {
    Error,  ///< a mistake: finish_backward names every one
    /// Unused: as if mark_unused had been called; if only some of its uses were marked, complete. The calls of
    /// mark_ready on other threads must have returned by then.
    Zero,
};

struct ReducerOptions {
    BucketLimits limits = {};  ///< of the plan that is made here; the same on all ranks
    /// A plan of an earlier run (plan()), instead of one made from `limits`. Not rebuilt.
    std::optional<BucketPlan> plan = std::nullopt;
    /// After the first synchronised step, plans anew by the order in which rank 0's gradients became ready, if that is
    /// another one. The views then move, once, inside the begin_backward that follows: call grad(i) in every step.
    /// (Off, as a view kept from before would be written without effect. Bound buffers stay where they are.)
    bool rebuild = false;
    Average average = Average::Auto;
    UnusedPolicy unused = UnusedPolicy::Error;
    /// Finds out in each step which gradients no rank has used (Step::used): one small all_reduce more.
    bool find_unused = false;
    /// Compares in each begin_backward what all ranks are about to do; a difference is Error{Mismatch} at once, not
    /// at the deadline. For debugging: costs a round trip.
    bool check_every_step = false;
    std::shared_ptr<CommHook> hook = nullptr;  ///< in the place of the plain all_reduce
    /// Called with each bucket that holds averages, in launch order, on a thread of the reducer's while backward goes
    /// on: update its parameters here, and the optimiser is overlapped as well. What it throws ends the reducer as
    /// what hooks throw does (comm_hook.hpp).
    std::function<void(const GradBucket&)> on_bucket_done = nullptr;
};

struct ReducerStats {
    std::uint64_t steps = 0;
    std::uint64_t bytes_reduced = 0;      ///< of the buckets; with compress() half of it travels
    std::chrono::nanoseconds backward{};  ///< begin_backward to finish_backward's return, summed; without sync too
    /// Of that: waited in finish_backward for communication. Scaling, copies, and what hooks and on_bucket_done do are
    /// not in it, nor is mark_ready: where ranks outnumber cores, a bucket may be exchanged before that returns.
    std::chrono::nanoseconds exposed{};
    std::size_t buckets_done = 0;    ///< of the backward under way, or the last one: already exchanged
    std::uint64_t out_of_order = 0;  ///< buckets that were complete before their turn: many mean that `rebuild` pays
};

/// What a backward has come to.
struct Step {
    bool synchronised = false;
    /// With ReducerOptions::find_unused, by parameter: whether any rank has used it since the synchronised backward
    /// before. The gradient of one that nobody has used is zero; an optimiser with momentum should skip it. Empty
    /// without find_unused, and after a backward without sync.
    std::vector<bool> used = {};
};

class GradientReducer {
    class Impl;

public:
    /// Collective. Runs on a group of its own, split from `group`, so that the user's collectives cannot interleave.
    /// Throws Error{Mismatch} naming the ranks and the first parameter that differs.
    GradientReducer(ProcessGroup& group, std::vector<ParamSpec> params, ReducerOptions options = {});
    ~GradientReducer();
    GradientReducer(GradientReducer&&) noexcept;

    /// Where to write gradient i: params[i].count elements, a view into its bucket, or the buffer bound in its place.
    [[nodiscard]] Buffer grad(std::size_t i);
    /// For gradients that live elsewhere: `external`, of the parameter's count and type, is copied into the bucket when
    /// it is marked ready, and the average is copied back. Between backwards, but not after one without sync, whose
    /// gradients would be lost; it has to stay valid from then on.
    void bind(std::size_t i, Buffer external);

    /// sync = false: no gradient is sent in this backward (accumulation). Every rank makes the same sequence of
    /// backwards with and without: the k-th of one never meets another of its peers', but ends in Error{Mismatch},
    /// which calls it step k. Views keep their contents from one backward to the next, so accumulating is the caller's:
    /// write into grad(i) in the first backward after a synchronised one, add to it in the following ones, and scale by
    /// the number of them.
    void begin_backward(bool sync = true);
    /// Gradient i is complete (with ParamSpec::uses = k: at the k-th call). Launches its bucket when it is the next one
    /// and full. Once too often in one backward: an error.
    void mark_ready(std::size_t i);
    /// Gradient i takes no part in this backward: its view (and a bound buffer) is set to zero, or keeps what earlier
    /// backwards without sync added.
    void mark_unused(std::size_t i);
    /// Waits for all buckets. Throws Error{InvalidArgument} naming every parameter that was not marked. After an error
    /// the reducer is unusable, here and (with Error{Aborted} or {PeerLost}) on the peers, which would wait for ever
    /// otherwise.
    Step finish_backward();

    /// While the guard lives, begin_backward() means begin_backward(false). The same on all ranks.
    class NoSync {
    public:
        explicit NoSync(GradientReducer& reducer);
        ~NoSync();
        NoSync(const NoSync&) = delete;
        NoSync& operator=(const NoSync&) = delete;

    private:
        Impl& reducer_;
    };
    [[nodiscard]] NoSync no_sync() { return NoSync(*this); }

    /// Broadcasts root's values: call once before training, with the parameters. Collective: every rank passes buffers
    /// of the same types and counts in the same order (else Error{Mismatch} or {Timeout}); they may lie anywhere in
    /// host memory. Returns when all are here; throws what a broadcast throws, and the values are then unspecified,
    /// except root's.
    void sync_parameters(std::span<const Buffer> params, int root = 0);
    /// Error{Mismatch} unless `params`, one buffer for each parameter, hold the same bits on all ranks: it names the
    /// first parameter that differs and the ranks. Collective; costs a pass over the memory and one small all_reduce.
    void verify_parameters(std::span<const Buffer> params);

    /// Which gradient lies where, the same on all ranks; to be saved for ReducerOptions::plan. The owner's thread; with
    /// `rebuild` the second synchronised begin_backward may put another plan into the same object.
    [[nodiscard]] const BucketPlan& plan() const;
    /// From the beginning of this reducer. Any thread, also in a backward and after a failure.
    [[nodiscard]] ReducerStats stats() const;

private:
    friend class Join;
    std::unique_ptr<Impl> impl_;
};

}  // namespace ddp
