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
      on_device_(storage.device() == Device::Cuda),
      averaging_(options.average, options.hook != nullptr, group.size()) {}

void BucketExchange::prepare_hook() {
    if (!options_.hook) return;
    options_.hook->prepare(group_, storage_.plan());
    hook_is_prepared_ = true;
}

void BucketExchange::abort_hook(std::string_view reason) const {
    if (hook_is_prepared_) options_.hook->abort(reason);
}

void BucketExchange::take_plan() {
    buckets_.assign(storage_.plan().buckets.size(), {});
    next_ = unfinished_ = 0;
    for (std::size_t b = 0; b < buckets_.size(); ++b) buckets_[b].label = "bucket " + std::to_string(b);
}

void BucketExchange::begin() {
    for (std::size_t b = 0; b < buckets_.size(); ++b) buckets_[b].pending = storage_.plan().buckets[b].slots.size();
    next_ = unfinished_ = 0;
}

GradBucket BucketExchange::bucket(std::size_t b) const {
    GradBucket bucket = storage_.bucket(b);
    bucket.stream = memory_.stream();
    return bucket;
}

void BucketExchange::launch(std::size_t b, std::uint64_t step) {
    if (on_device_) finish_all(b);
    const GradBucket launching = bucket(b);
    const auto launched = ddprun::Clock::now();
    memory_.pack(b, options_.hook ? 1 : averaging_.factor_before());
    Work& work = buckets_[b].work;
    work = options_.hook ? options_.hook->launch(launching)
                         : group_.all_reduce(launching.buffer, averaging_.op(),
                                             {.label = buckets_[b].label, .stream = launching.stream});
    timeline_.follow(work, {.step = step, .index = b, .bytes = launching.buffer.bytes()}, launched);
}

std::size_t BucketExchange::done() const {
    std::size_t done = 0;
    for (std::size_t b = 0; b < next_; ++b) done += buckets_[b].work.done() ? 1 : 0;
    return done;
}

/// While the finisher waits, the trainer goes on with backward. So the flight record gets a waiter only when the
/// trainer waits, too (note_waiter).
void BucketExchange::wait_for(Work& work) const {
    if (!finishes_aside()) return work.wait();
    if (const auto& state = WorkState::of(work)) state->wait();
}

void BucketExchange::finish(std::size_t b) {
    buckets_[b].wait_began = ddprun::Clock::now();
    wait_for(buckets_[b].work);
    buckets_[b].wait_ended = ddprun::Clock::now();
    const GradBucket done = bucket(b);
    if (options_.hook) options_.hook->complete(done);
    memory_.unpack(b, averaging_.factor_after());
    if (options_.on_bucket_done) options_.on_bucket_done(done);
}

void BucketExchange::finish_all(std::size_t end) {
    while (unfinished_ < end) finish(unfinished_++);
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
