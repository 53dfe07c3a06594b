#pragma once
// BucketExchange: the buckets of a backward, from their launch to their averages. Bucket k is launched only after
// bucket k - 1, so that the launches are one sequence, the same on all ranks.
//
// The reducer's mutex guards counting and launching, which run on any thread that completes a bucket. On the host
// finish() runs without it, on one thread: the finisher's, or the owner's if there is none. On a device finishing a
// bucket only enqueues. It happens at the launch of the next bucket, whose turn on the stream comes later, so that the
// caller does not wait until NCCL has launched the exchange.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock.hpp"
#include "ddp/reducer.hpp"
#include "worker_lib/src/reducer/averaging.hpp"
#include "worker_lib/src/reducer/gradient_memory.hpp"
#include "worker_lib/src/reducer/timeline.hpp"

namespace ddp::detail {

class BucketExchange {
public:
    /// All arguments must outlive this object.
    BucketExchange(ProcessGroup& group, const ReducerOptions& options, const GradientStorage& storage,
                   GradientMemory& memory, const TimelineRow& timeline);

    /// Hands the storage's plan to the hook. Collective; without the reducer's mutex.
    void prepare_hook();
    /// Lets the hook abort its groups, if it has been prepared: else another reducer may have it. Any thread.
    void abort_hook(std::string_view reason) const;
    /// Divides sums by `ranks` from the next backward on. Must not be called during a backward.
    void divide_by(int ranks) { averaging_.divide_by(ranks); }

    // Under the reducer's mutex:
    /// Takes over the storage's plan, which is new.
    void take_plan();
    /// Begins a backward, in which no gradient is complete yet.
    void begin();
    /// Counts one more complete gradient of bucket `b`. Returns whether that completes the bucket before its turn.
    [[nodiscard]] bool count_gradient(std::size_t b) { return --buckets_[b].pending == 0 && b != next_; }
    /// Takes the next bucket if it is complete. The caller launches it.
    [[nodiscard]] std::optional<std::size_t> take_complete() {
        if (next_ == buckets_.size() || buckets_[next_].pending > 0) return std::nullopt;
        return next_++;
    }
    /// Starts the exchange of bucket `b`; on a device it finishes the one before. `step`: synchronised backwards so
    /// far, for the timeline.
    void launch(std::size_t b, std::uint64_t step);
    /// Returns whether buckets are finished on a thread of their own (BucketFinisher).
    [[nodiscard]] bool finishes_aside() const { return !on_device_ && (options_.hook || options_.on_bucket_done); }
    /// Returns how many buckets have been exchanged.
    [[nodiscard]] std::size_t done() const;

    // Without the mutex, once buckets are launched:
    /// Waits for bucket `b`, turns its sums into averages, copies them to bound buffers, and runs the user's callback.
    void finish(std::size_t b);
    /// Finishes all buckets that are not finished, in launch order, if there is no finisher.
    void finish_all() { finish_all(buckets_.size()); }
    /// Records in the flight record that this thread waits for every bucket that is not done.
    void note_waiter() const;
    /// Returns how long finish() has waited since `time`, over all buckets.
    [[nodiscard]] ddprun::Duration waited_since(ddprun::TimePoint time) const;

private:
    struct Bucket {
        std::size_t pending = 0;  ///< gradients of this backward that are not complete yet
        std::string label;
        Work work;
        ddprun::TimePoint wait_began;  ///< in finish()
        ddprun::TimePoint wait_ended;
    };
    void finish_all(std::size_t end);
    [[nodiscard]] GradBucket bucket(std::size_t b) const;
    void wait_for(Work& work) const;

    ProcessGroup& group_;
    const ReducerOptions& options_;
    const GradientStorage& storage_;
    GradientMemory& memory_;
    const TimelineRow& timeline_;
    const bool on_device_;
    Averaging averaging_;
    std::vector<Bucket> buckets_;
    bool hook_is_prepared_ = false;
    std::size_t next_ = 0;
    std::size_t unfinished_ = 0;  ///< the first bucket for finish_all()
};

}  // namespace ddp::detail
