#pragma once
// JobQueue: owns the queued operations of one group on the native backend, and decides when its progress thread runs
// them. NativeBackend owns it; OperationRunner, the progress thread and threads that wait for works use it.
// Thread-safe.
//
// The progress thread is woken only if no other thread is likely to run a job (WakeChoice). While it is left asleep,
// it polls for a job that has been queued for long.

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include "common/clock.hpp"
#include "common/mutex.hpp"
#include "worker_lib/src/native/collectives/collectives.hpp"
#include "worker_lib/src/operation/operation.hpp"
#include "worker_lib/src/operation/work_state.hpp"
#include "worker_lib/src/tuning/wake_choice.hpp"

namespace ddp::detail {

/// One queued operation.
struct Job {
    Operation operation;
    std::shared_ptr<WorkState> work;
    Step step = Step::kNone;    ///< the last step that submit() has carried out
    bool peers_served = false;  ///< peers need nothing more of this rank
};

class JobQueue {
public:
    // The state after the last change, read without the lock. OperationRunner, which takes jobs away, holds its own.
    /// Returns whether nothing is queued, and nothing for the progress thread to do.
    [[nodiscard]] bool is_idle() const { return idle_.load(std::memory_order_relaxed); }
    /// Returns whether callers seem to wait for their operations instead of computing meanwhile.
    [[nodiscard]] bool callers_wait() const { return callers_wait_.load(std::memory_order_relaxed); }

    /// Returns whether an operation may be announced before the queued ones run: all of them have been announced, and
    /// none will still write the buffer that this one reads.
    [[nodiscard]] bool may_announce_behind(const Operation& operation) EXCLUDES(mutex_);
    void push(Job job) EXCLUDES(mutex_);
    /// Takes the first job. A job with a deadline later than `latest` is left to the progress thread, because a helping
    /// thread has a deadline of its own to keep.
    [[nodiscard]] std::optional<Job> next(ddprun::TimePoint latest = ddprun::TimePoint::max()) EXCLUDES(mutex_);
    /// Makes the progress thread run the queued jobs.
    void wake() EXCLUDES(mutex_);

    /// Makes the progress thread handle the failure of the group.
    void report_failure() EXCLUDES(mutex_);
    /// Makes the progress thread end.
    void stop() EXCLUDES(mutex_);
    /// Returns whether report_failure() has been called since the last time.
    [[nodiscard]] bool take_failure() EXCLUDES(mutex_);
    /// Blocks the progress thread until there is something to do. Returns false after stop().
    [[nodiscard]] bool wait() EXCLUDES(mutex_);

private:
    class Update;  ///< holds mutex_; at its end publishes is_idle() and callers_wait()

    void wake_thread() REQUIRES(mutex_);
    void poll_jobs() REQUIRES(mutex_);

    ddprun::Mutex mutex_;
    ddprun::Condition changed_;
    std::deque<Job> jobs_ GUARDED_BY(mutex_);
    bool wanted_ GUARDED_BY(mutex_) = false;  ///< the progress thread has to run the queued jobs
    WakeChoice choice_ GUARDED_BY(mutex_);
    bool watching_ GUARDED_BY(mutex_) = false;  ///< the progress thread polls
    bool stopping_ GUARDED_BY(mutex_) = false;
    bool failed_ GUARDED_BY(mutex_) = false;  ///< since the last take_failure()
    std::atomic<bool> idle_{true};
    std::atomic<bool> callers_wait_{true};
};

}  // namespace ddp::detail
