#pragma once
// GradientReducer::Impl: composes the parts of a reducer into one backward after another, and ends the reducer on all
// ranks when one of them fails. The parts: GradientMarks (which gradients are complete), GradientStorage (where they
// are), GradientMemory (copies and factors), BucketExchange (launch and averages), BucketFinisher (its thread),
// NextBackward, StepCapture, ReducerPhase, BackwardStatistics.
//
// mark() and stats() run on any thread, all else on the owner's. `mutex_` guards the state that marking changes, and
// makes the launches one sequence. Gradients are copied and cleared outside of it, by the thread that has claimed them.

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/mutex.hpp"
#include "ddp/reducer.hpp"
#include "worker_lib/src/reducer/bucket_exchange.hpp"
#include "worker_lib/src/reducer/bucket_finisher.hpp"
#include "worker_lib/src/reducer/gradient_marks.hpp"
#include "worker_lib/src/reducer/gradient_memory.hpp"
#include "worker_lib/src/reducer/gradient_storage.hpp"
#include "worker_lib/src/reducer/next_backward.hpp"
#include "worker_lib/src/reducer/phase.hpp"
#include "worker_lib/src/reducer/statistics.hpp"
#include "worker_lib/src/reducer/step_capture.hpp"
#include "worker_lib/src/reducer/timeline.hpp"
#include "worker_lib/src/util/forks.hpp"

namespace ddp {

/// The graph, and what it was made of.
struct CapturedStep::State {
    std::shared_ptr<detail::CapturedGraph> graph;
    const void* reducer = nullptr;  ///< its Impl
    std::uint64_t binds = 0;
};

class GradientReducer::Impl {
public:
    Impl(ProcessGroup& parent, std::vector<ParamSpec> params, ReducerOptions options);
    ~Impl();
    /// Returns whether this process is a child of fork() of the one that made the reducer.
    [[nodiscard]] bool is_elsewhere() const { return home_.is_elsewhere(); }

    [[nodiscard]] Buffer grad(std::size_t i) const;
    /// Throws Error{InvalidArgument} if the parameter is of another type.
    [[nodiscard]] Buffer grad(std::size_t i, DType type) const;
    void zero_grads(Stream stream);
    void bind(std::size_t i, Buffer external);
    void begin(bool sync, Stream stream);
    void mark(std::size_t i, bool unused, Stream stream);
    BackwardResult finish(Stream stream);
    [[nodiscard]] std::shared_ptr<CapturedStep::State> capture(Stream stream, const std::function<void()>& step);
    void replay(const CapturedStep::State& step, Stream stream);
    void sync_parameters(std::span<const Buffer> params, int root, Stream stream);
    void verify_parameters(std::span<const Buffer> params, Stream stream);
    [[nodiscard]] const BucketPlan& plan() const { return storage_->plan(); }
    [[nodiscard]] ReducerStats stats() const;
    [[nodiscard]] Buffer step_ok() const { return memory_->step_ok(); }

    // For NoSync and Join:
    [[nodiscard]] detail::NextBackward& next() { return next_; }
    [[nodiscard]] int ranks() const { return group_->size(); }
    /// Takes part in a backward of the other ranks with every gradient unused, for Join. `sync`: whether that backward
    /// synchronises.
    void shadow(bool sync);
    void divide_by(int ranks) { exchange_->divide_by(ranks); }
    /// Fails the reducer, here and on all peers, which would otherwise wait in vain. Throws Error{InvalidArgument}.
    void end_for_misuse(const std::string& text);

private:
    void check_index(std::size_t i) const;
    [[nodiscard]] std::unique_ptr<detail::GradientMemory> make_memory();
    /// Throws Error{InvalidArgument} "CALL: …" if no whole step can be captured or replayed now.
    void check_whole_step(Stream stream, std::string_view call) EXCLUDES(mutex_);
    void check_capture() const;
    void throw_failure_of_group() const;
    void check_step(std::uint64_t number, std::string kind);
    void finish_step_check() noexcept;
    void rebuild_plan(Stream stream);
    void complete(std::size_t i, Stream stream);
    void mark_the_rest(Stream stream);
    [[nodiscard]] bool end_marking();
    void finish_aside(std::size_t b) noexcept;
    /// Makes the buckets of the storage's plan, and binds the hook to it. Collective.
    void take_plan() EXCLUDES(mutex_);
    void wait_for_buckets();
    void end_exchange(Stream stream) EXCLUDES(mutex_);
    /// Aborts the reducer's group, and those of the hook.
    void abort(std::string_view reason);
    void fail() REQUIRES(mutex_);
    /// Runs an action in which the peers take part. If it throws, the reducer fails. The caller does not hold the lock.
    template <typename Action>
    void or_fail(Action action) EXCLUDES(mutex_) {
        try {
            action();
        } catch (...) {
            const ddprun::Lock lock(mutex_);
            fail();
            throw;
        }
    }

    const std::vector<ParamSpec> specs_;
    const ReducerOptions options_;
    const Device device_;  ///< of the gradients
    bool may_rebuild_;     ///< until rank 0 has made a synchronised backward of its own
    std::unique_ptr<ProcessGroup> group_;
    detail::TimelineRow timeline_;
    std::optional<detail::GradientStorage> storage_;
    std::unique_ptr<detail::GradientMemory> memory_;
    std::optional<detail::StepCapture> capture_;  ///< if the gradients are device memory
    std::uint64_t binds_ = 0;                     ///< calls of bind(): a captured step knows the buffers before it
    detail::NextBackward next_;
    Stream last_stream_;                             ///< of the last finish_backward, for shadow()
    std::shared_ptr<detail::WorkState> step_check_;  ///< the barrier of check_step(), which may be in flight

    mutable ddprun::Mutex mutex_;
    detail::ReducerPhase phase_ GUARDED_BY(mutex_);
    detail::GradientMarks marks_ GUARDED_BY(mutex_);
    // stats() reads these under the lock, under which they change. While no thread marks, the owner's thread reads them
    // without it, and the finisher's finishes buckets.
    std::optional<detail::BucketExchange> exchange_;
    detail::BackwardStatistics statistics_;
    const detail::ProcessMark home_;
    /// If there is a hook or a callback, and gradients are in host memory. Last: it uses the above.
    std::optional<detail::BucketFinisher> finisher_;
};

}  // namespace ddp
