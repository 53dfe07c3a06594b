#include "worker_lib/src/reducer/bucket_exchange.hpp"

#include <algorithm>

#include "worker_lib/src/operation/work_state.hpp"

namespace ddp::detail {

BucketExchange::BucketExchange(ProcessGroup& group, const ReducerOptions& options, const GradientStorage& storage,
                               GradientMemory& memory, const TimelineRow& timeline)
    : group_(group),
      options_(options),
      storage_(storage),
      memory_(memory),
      timeline_(timeline),
      averaging_(options.average, options.hook != nullptr, group.size()) {}

void BucketExchange::prepare_hook() {
    if (options_.hook) options_.hook->prepare(group_, storage_.plan());
}

void BucketExchange::take_plan() {
    buckets_.assign(storage_.plan().buckets.size(), {});
    next_ = 0;
    for (std::size_t b = 0; b < buckets_.size(); ++b) buckets_[b].label = "bucket " + std::to_string(b);
}

void BucketExchange::begin() {
    for (std::size_t b = 0; b < buckets_.size(); ++b) buckets_[b].pending = storage_.plan().buckets[b].slots.size();
    next_ = 0;
}

void BucketExchange::launch(std::size_t b, std::uint64_t step) {
    const GradBucket bucket = storage_.bucket(b);
    const auto launched = ddprun::Clock::now();
    Work& work = buckets_[b].work;
    if (options_.hook) {
        work = options_.hook->launch(bucket);
    } else {
        memory_.pack(b, averaging_.factor_before());
        work = group_.all_reduce(bucket.buffer, averaging_.op(), {.label = buckets_[b].label});
    }
    timeline_.follow(work, {.step = step, .index = b, .bytes = bucket.buffer.bytes()}, launched);
}

std::size_t BucketExchange::done() const {
    std::size_t done = 0;
    for (std::size_t b = 0; b < next_; ++b) done += buckets_[b].work.done() ? 1 : 0;
    return done;
}

/// While the finisher waits, the trainer goes on with backward. So the flight record gets a waiter only when the
/// trainer waits, too (note_waiter).
void BucketExchange::wait_for(Work& work) const {
    if (!finishes_aside(options_)) return work.wait();
    if (const auto& state = WorkState::of(work)) state->wait();
}

void BucketExchange::finish(std::size_t b) {
    buckets_[b].wait_began = ddprun::Clock::now();
    wait_for(buckets_[b].work);
    buckets_[b].wait_ended = ddprun::Clock::now();
    const GradBucket bucket = storage_.bucket(b);
    if (options_.hook) options_.hook->complete(bucket);
    memory_.unpack(b, averaging_.factor_after());
    if (options_.on_bucket_done) options_.on_bucket_done(bucket);
}

void BucketExchange::finish_all() {
    for (std::size_t b = 0; b < buckets_.size(); ++b) finish(b);
}

void BucketExchange::note_waiter() const {
    for (const Bucket& bucket : buckets_) {
        const WorkState* const work = WorkState::of(bucket.work).get();
        if (work != nullptr && !work->done()) work->note_waiter(work->blocks_host());
    }
}

ddprun::Duration BucketExchange::waited_since(ddprun::TimePoint time) const {
    ddprun::Duration sum{};
    for (const Bucket& bucket : buckets_) {
        if (bucket.wait_ended > time) sum += bucket.wait_ended - std::max(bucket.wait_began, time);
    }
    return sum;
}

}  // namespace ddp::detail
