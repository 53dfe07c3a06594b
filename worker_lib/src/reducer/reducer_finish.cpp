// The end of a backward: wait for the buckets, turn sums into averages; and what becomes of failures.
#include <algorithm>
#include <exception>
#include <utility>

#include "worker_lib/src/caught.hpp"
#include "worker_lib/src/native/usual_floats.hpp"
#include "worker_lib/src/reducer/reducer_impl.hpp"
#include "worker_lib/src/reducer/values.hpp"
#include "worker_lib/src/work_state.hpp"

namespace ddp {
namespace {

using detail::refuse;

}  // namespace

Step GradientReducer::Impl::finish() {
    if (options_.unused == UnusedPolicy::Zero) mark_the_rest();
    const bool sync = end_marking();
    const auto wait_began = ddprun::Clock::now();
    Step step{.synchronised = sync};
    ddprun::Duration exposed{};
    if (sync) {
        or_fail([&] {
            wait_for_buckets();
            exposed = waited_since(wait_began);
            if (!options_.find_unused) return;
            const auto asked = ddprun::Clock::now();
            step.used = used_anywhere();
            exposed += ddprun::Clock::now() - asked;
        });
    }
    const auto now = ddprun::Clock::now();
    if (timeline_) {
        timeline_->span(timeline_row_, sync ? "backward" : "backward without sync", began_, wait_began);
        if (sync) timeline_->span(timeline_row_, "wait", wait_began, now);
        timeline_->flush();
    }
    const std::lock_guard lock(mutex_);
    phase_ = Phase::kIdle;
    has_accumulated_ = !sync;
    stats_.backward += now - began_;
    if (!sync) return step;
    ++stats_.steps;
    stats_.exposed += exposed;
    for (const BucketPlan::Bucket& bucket : plan().buckets) stats_.bytes_reduced += bucket.bytes;
    return step;
}

/// UnusedPolicy::Zero. A gradient of which only some uses were marked is complete.
void GradientReducer::Impl::mark_the_rest() {
    std::vector<std::pair<std::size_t, Fill>> rest;
    {
        const std::lock_guard lock(mutex_);
        if (!in_backward()) return;  // end_marking() says why
        for (std::size_t i = 0; i < params_.size(); ++i) {
            const bool unused = params_[i].uses_left == specs_[i].uses;
            if (std::exchange(params_[i].uses_left, 0) > 0) rest.emplace_back(i, how_to_fill(unused));
        }
    }
    for (const auto& [i, fill] : rest) {
        fill_in(i, fill);
        complete(i);
    }
}

/// Whether this backward synchronises. Throws when a gradient is missing.
bool GradientReducer::Impl::end_marking() {
    const std::lock_guard lock(mutex_);
    refuse_if_failed();
    if (!in_backward()) refuse("finish_backward was called without begin_backward");
    std::string missing;
    for (std::size_t i = 0; i < params_.size(); ++i) {
        if (!params_[i].complete) missing += (missing.empty() ? "'" : ", '") + specs_[i].name + "'";
    }
    if (missing.empty()) return phase_ == Phase::kSyncing;
    try {
        refuse("finish_backward: these parameters were not marked ready: " + missing +
               ". Call mark_ready for each gradient, or mark_unused for those that took no part, or set "
               "ReducerOptions::unused to UnusedPolicy::Zero");
    } catch (...) {
        fail();
        throw;
    }
}

/// While the finisher waits the trainer goes on with backward: only when that waits, too, the board says so.
void GradientReducer::Impl::wait_for(Work& work) const {
    if (!finishes_aside()) return work.wait();
    if (detail::WorkState* const state = detail::WorkState::of(work)) state->wait();
}

/// Everything that turns a bucket that has been exchanged into averages where the caller wants them.
void GradientReducer::Impl::finish_bucket(std::size_t b) {
    buckets_[b].wait_began = ddprun::Clock::now();
    wait_for(buckets_[b].work);
    buckets_[b].wait_ended = ddprun::Clock::now();
    const GradBucket bucket = storage_->bucket(b);
    if (options_.hook) options_.hook->complete(bucket);
    detail::scale(bucket.buffer, factor_after());
    storage_->copy_out(b);
    if (options_.on_bucket_done) options_.on_bucket_done(bucket);
}

/// On the finisher's thread. The peers hear of a failure at once, the caller at its next call.
void GradientReducer::Impl::finish_bucket_aside(std::size_t b) noexcept {
    {
        const std::lock_guard lock(mutex_);
        if (phase_ == Phase::kFailed) return;
    }
    std::exception_ptr failure;
    try {
        return finish_bucket(b);
    } catch (...) {
        failure = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    if (phase_ == Phase::kFailed) return;  // as this is what comes of it
    try {
        std::rethrow_exception(failure);
    } catch (...) {
        fail();
    }
    untold_ = std::move(failure);  // from here on it is the caller's alone
}

void GradientReducer::Impl::wait_for_buckets() {
    if (finisher_) {
        for (const auto& bucket : buckets_) {
            const detail::WorkState* const work = detail::WorkState::of(bucket.work);
            if (work != nullptr && !work->done()) work->note_waiter(work->blocks_host());
        }
        finisher_->wait();
        const std::lock_guard lock(mutex_);
        refuse_if_failed();
    } else {
        for (std::size_t b = 0; b < buckets_.size(); ++b) finish_bucket(b);
    }
}

ddprun::Duration GradientReducer::Impl::waited_since(ddprun::TimePoint time) const {
    ddprun::Duration sum{};
    for (const Bucket& bucket : buckets_) {
        if (bucket.wait_ended > time) sum += bucket.wait_ended - std::max(bucket.wait_began, time);
    }
    return sum;
}

/// To be called where the failure is caught, under the lock. The peers would wait until their deadline for buckets that
/// never come: tell them at once.
void GradientReducer::Impl::fail() {
    if (phase_ == Phase::kFailed) return;  // what follows from the first failure is none
    failure_ = detail::caught();
    phase_ = Phase::kFailed;
    group_->abort(failure_);
}

void GradientReducer::Impl::end_for_misuse(const std::string& text) {
    or_fail([&] { refuse(text); });
}

// Averaging. A hook, and a reduction by Avg, divide by all ranks of the group; when the divisor is another one (Join),
// a factor corrects it.

ReduceOp GradientReducer::Impl::op() const {
    const bool in_reduce = options_.average == Average::Auto || options_.average == Average::InReduce;
    return in_reduce ? ReduceOp::Avg : ReduceOp::Sum;
}

double GradientReducer::Impl::factor_before() const {
    const detail::UsualFloats floats;
    return options_.average == Average::Pre ? 1.0 / divisor_ : 1.0;
}

double GradientReducer::Impl::factor_after() const {
    const detail::UsualFloats floats;
    if (options_.hook || op() == ReduceOp::Avg) return static_cast<double>(group_->size()) / divisor_;
    return options_.average == Average::Post ? 1.0 / divisor_ : 1.0;
}

}  // namespace ddp
