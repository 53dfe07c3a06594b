// The backward: begin, mark, launch. Its end stands in reducer_finish.cpp, what is around it in reducer_setup.cpp.
#include "ddp/reducer.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "worker_lib/src/group.hpp"
#include "worker_lib/src/native/usual_floats.hpp"
#include "worker_lib/src/reducer/reducer_impl.hpp"
#include "worker_lib/src/reducer/values.hpp"
#include "worker_lib/src/work_state.hpp"

namespace ddp {
namespace {

using detail::refuse;

std::string with_or_without(bool sync) { return sync ? "with sync" : "without sync"; }

}  // namespace

/// Throws a failure on the reducer's own thread as it was, once; later calls hear of it.
void GradientReducer::Impl::refuse_if_failed() {
    if (phase_ != Phase::kFailed) return;
    if (const auto failure = std::exchange(untold_, nullptr)) std::rethrow_exception(failure);
    throw Error(ErrorCode::Aborted, "this GradientReducer failed earlier: " + failure_);
}

void GradientReducer::Impl::check_announcement(bool sync) const {
    if (next_ == Next::kAny) return;
    if (next_ == Next::kUnannounced) {
        refuse(
            "begin_backward: Join::more() was not called before it. Call it before each backward, as ranks without "
            "batches make one for each call");
    }
    if (next_ == Next::kEnded) {
        refuse(
            "begin_backward: Join::more() has returned false, as no rank has a batch left. Leave the loop then; for "
            "backwards that are no part of it end the Join's life first");
    }
    if ((next_ == Next::kSync) != sync) {
        refuse("begin_backward: this is a backward " + with_or_without(sync) + ", but Join::more() announced one " +
               with_or_without(!sync) +
               ", which ranks without batches make. Pass more() what begin_backward will do, a "
               "no_sync() that is in force included");
    }
}

void GradientReducer::Impl::begin(bool sync) {
    sync = sync && no_sync_guards_ == 0;
    {
        const std::lock_guard lock(mutex_);
        refuse_if_failed();
        if (phase_ != Phase::kIdle) refuse("begin_backward: the backward before was not ended by finish_backward");
        check_announcement(sync);
    }
    if (options_.check_every_step) agree_on_step(sync);
    if (next_ != Next::kAny) next_ = Next::kUnannounced;  // not before: when ranks disagree, all may try again
    ++backwards_;
    if (sync) group_->impl_->set_step(backwards_);  // no rank can take the buckets of another backward for this one's
    if (may_rebuild_ && stats_.steps > 0) or_fail([this] { rebuild(); });

    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < params_.size(); ++i) {
        params_[i].uses_left = specs_[i].uses;
        params_[i].complete = false;
        if (!has_accumulated_) params_[i].used = false;
    }
    for (std::size_t b = 0; b < buckets_.size(); ++b) buckets_[b].pending = plan().buckets[b].slots.size();
    ready_order_.clear();
    next_bucket_ = 0;
    phase_ = sync ? Phase::kSyncing : Phase::kAccumulating;
    began_ = ddprun::Clock::now();
}

void GradientReducer::Impl::mark(std::size_t i, bool unused) {
    check_index(i);
    const Fill fill = claim(i, unused);
    if (fill == Fill::kNotYet) return;
    fill_in(i, fill);
    complete(i);
}

/// What the caller has to do for the gradient, which is complete with this mark unless its layers share it.
GradientReducer::Impl::Fill GradientReducer::Impl::claim(std::size_t i, bool unused) {
    const std::lock_guard lock(mutex_);
    refuse_if_failed();
    if (!in_backward())
        refuse("parameter '" + specs_[i].name + "' was marked outside begin_backward … finish_backward");
    Param& param = params_[i];
    const int uses = specs_[i].uses;
    if (param.uses_left == 0) {
        refuse("parameter '" + specs_[i].name + "' was marked " +
               (uses == 1 ? "twice" : "more than " + std::to_string(uses) + " times") +
               " in one backward. Mark a gradient once, when it is complete: if layers share it, after the last of "
               "them, or say how many there are by ParamSpec::uses");
    }
    if (unused && param.uses_left != uses)
        refuse("parameter '" + specs_[i].name + "' was marked unused after it had been marked ready");
    param.uses_left = unused ? 0 : param.uses_left - 1;
    if (!unused) param.used = true;
    return param.uses_left > 0 ? Fill::kNotYet : how_to_fill(unused);
}

GradientReducer::Impl::Fill GradientReducer::Impl::how_to_fill(bool unused) const {
    if (unused && !has_accumulated_) return Fill::kZero;  // what earlier backwards without sync have added must survive
    return phase_ == Phase::kSyncing ? Fill::kCopy : Fill::kNothing;
}

void GradientReducer::Impl::fill_in(std::size_t i, Fill how) const {
    if (how == Fill::kZero) storage_->zero(i);
    if (how == Fill::kCopy) storage_->copy_in(i);
}

void GradientReducer::Impl::complete(std::size_t i) {
    const std::lock_guard lock(mutex_);
    params_[i].complete = true;
    if (phase_ != Phase::kSyncing) return;
    ready_order_.push_back(i);
    const std::size_t b = storage_->bucket_of(i);
    if (--buckets_[b].pending == 0 && b != next_bucket_) ++stats_.out_of_order;
    launch_complete_buckets();
}

void GradientReducer::Impl::launch_complete_buckets() {
    while (next_bucket_ < buckets_.size() && buckets_[next_bucket_].pending == 0) {
        const std::size_t b = next_bucket_++;
        try {
            buckets_[b].work = launch(b);
        } catch (...) {
            fail();  // else a caller that drops this exception would finish with unreduced gradients
            throw;
        }
        if (finisher_) finisher_->add();
    }
}

Work GradientReducer::Impl::launch(std::size_t b) {
    const GradBucket bucket = storage_->bucket(b);
    const auto launched = ddprun::Clock::now();
    Work work;
    if (options_.hook) {
        work = options_.hook->launch(bucket);
    } else {
        detail::scale(bucket.buffer, factor_before());
        work = group_->all_reduce(bucket.buffer, op(), {}, {.timeout = {}, .tag = buckets_[b].tag});
    }
    if (timeline_) {
        const detail::Timeline::Bucket what{
            .row = timeline_row_, .step = stats_.steps, .index = b, .bytes = bucket.buffer.bytes()};
        work.then(
            [timeline = timeline_, what, launched](auto) { timeline->bucket(what, launched, ddprun::Clock::now()); });
    }
    return work;
}

GradientReducer::NoSync::NoSync(GradientReducer& reducer) : reducer_(*reducer.impl_) { reducer_.set_no_sync(+1); }
GradientReducer::NoSync::~NoSync() { reducer_.set_no_sync(-1); }

GradientReducer::GradientReducer(ProcessGroup& group, std::vector<ParamSpec> params, ReducerOptions options)
    : impl_(std::make_unique<Impl>(group, std::move(params), std::move(options))) {}
GradientReducer::~GradientReducer() {
    if (impl_ && impl_->is_elsewhere()) static_cast<void>(impl_.release());  // its threads are the parent's
}
GradientReducer::GradientReducer(GradientReducer&&) noexcept = default;

Buffer GradientReducer::grad(std::size_t i) { return impl_->grad(i); }
void GradientReducer::bind(std::size_t i, Buffer external) { impl_->bind(i, external); }
void GradientReducer::begin_backward(bool sync) { impl_->begin(sync); }
void GradientReducer::mark_ready(std::size_t i) { impl_->mark(i, false); }
void GradientReducer::mark_unused(std::size_t i) { impl_->mark(i, true); }
Step GradientReducer::finish_backward() { return impl_->finish(); }
void GradientReducer::sync_parameters(std::span<const Buffer> params, int root) {
    impl_->sync_parameters(params, root);
}
void GradientReducer::verify_parameters(std::span<const Buffer> params) { impl_->verify_parameters(params); }
const BucketPlan& GradientReducer::plan() const { return impl_->plan(); }
ReducerStats GradientReducer::stats() const { return impl_->stats(); }

}  // namespace ddp
