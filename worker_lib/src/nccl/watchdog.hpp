#pragma once
// Watchdog: follows the operations of one group on the device. Its thread ends their works in order, notices
// deadlines, lost peers and NCCL's background errors, and is the only one that aborts the communicator. It sends a
// failure to no other rank: their watchdogs notice it as a background error of NCCL, or at the deadline of an
// operation. NcclBackend owns it.

#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "common/mutex.hpp"
#include "worker_lib/src/cuda/waiting.hpp"
#include "worker_lib/src/nccl/callback_thread.hpp"
#include "worker_lib/src/nccl/communicator.hpp"
#include "worker_lib/src/nccl/peers.hpp"
#include "worker_lib/src/nccl/work.hpp"
#include "worker_lib/src/operation/failure.hpp"

namespace ddp::detail {

/// The error of a call whose peers did not make it too.
inline constexpr std::string_view kStillConnecting =
    "NCCL was still connecting to its peers at its deadline: have all ranks made this call?";

class Watchdog {
public:
    /// own_rank   as own_rank_text() names it
    Watchdog(std::string own_rank, const Peers& peers, std::shared_ptr<GroupDevice> device, Communicator& communicator,
             const NcclLimits& limits);
    ~Watchdog() { end(); }
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;
    /// Fails the works in flight with Aborted and ends both threads. Bounded by the limits and by the callbacks' own
    /// waits. Must not be called from a callback.
    void end() EXCLUDES(mutex_);

    /// Exists while its maker is in the call of a work. If that call may block (Communicator::may_block) and has not
    /// returned at the work's deadline, the group fails. One at a time.
    class Expectation {
    public:
        Expectation(Watchdog& watchdog, std::shared_ptr<NcclWork> work);
        ~Expectation() { watchdog_.expect(nullptr); }
        Expectation(const Expectation&) = delete;
        Expectation& operator=(const Expectation&) = delete;

    private:
        Watchdog& watchdog_;
    };
    /// Takes over a work that has been launched. After a failure the work fails too.
    void watch(std::shared_ptr<NcclWork> work) EXCLUDES(mutex_);
    /// Fails all works, in flight and to come. Only the first failure counts; its cause names the group. Returns at
    /// once. Any thread.
    void fail(Failure failure) EXCLUDES(mutex_);
    /// Takes note that another group of this device has failed, with lost peers or by a deadline. If a lost rank is one
    /// of this group, this group fails, too. Otherwise it fails if the oldest operation in flight, once the device has
    /// come to it, does not end within limits.shared_timeout. Returns at once. Any thread.
    /// theirs   the peers of that group
    void hear(const Failure& failure, const Peers& theirs) EXCLUDES(mutex_);
    [[nodiscard]] int device_index() const { return device_->index(); }
    [[nodiscard]] const Peers& peers() const { return peers_; }
    /// Returns the group's failure, if it has failed. Any thread.
    [[nodiscard]] std::optional<Failure> failure() const EXCLUDES(mutex_);

private:
    void run() EXCLUDES(mutex_);
    void expect(std::shared_ptr<NcclWork> work) EXCLUDES(mutex_);
    /// Returns whether nothing is left to do, and no callback can bring more.
    [[nodiscard]] bool is_over() const REQUIRES(mutex_) { return stop_ && callbacks_->is_idle(); }
    [[nodiscard]] bool has_work() const REQUIRES(mutex_) { return !pending_.empty() || (failure_ && !aborted_); }
    void await_work() REQUIRES(mutex_);
    [[nodiscard]] bool is_expected_late() const REQUIRES(mutex_);
    void note(Failure failure) REQUIRES(mutex_);
    void follow_first(Backoff& backoff) REQUIRES(mutex_);
    void end_work(const std::shared_ptr<NcclWork>& work, std::exception_ptr error) EXCLUDES(mutex_);
    void run_callbacks(const EndedWork& ended) EXCLUDES(mutex_);
    void give_up() REQUIRES(mutex_);
    void abort_communicator() REQUIRES(mutex_);
    [[nodiscard]] std::optional<Failure> examine(const NcclWork& first, CUresult state);
    [[nodiscard]] std::optional<Failure> missed_deadline() const REQUIRES(mutex_);
    [[nodiscard]] std::optional<Failure> missed_peer() REQUIRES(mutex_);
    [[nodiscard]] std::optional<Failure> shared_failure(const NcclWork& first) REQUIRES(mutex_);
    [[nodiscard]] bool needs_lost_peer(const NcclWork& work) const;
    [[nodiscard]] std::exception_ptr error_for(const NcclWork& work) const REQUIRES(mutex_);

    const std::string own_rank_;
    const Peers& peers_;
    const std::shared_ptr<GroupDevice> device_;
    Communicator& communicator_;
    const NcclLimits limits_;

    mutable ddprun::Mutex mutex_;  // taken before CallbackThread's, never after
    ddprun::Condition changed_;
    std::deque<std::shared_ptr<NcclWork>> pending_
        GUARDED_BY(mutex_);  // in the order of their launch; only run() removes
    std::shared_ptr<NcclWork> expected_ GUARDED_BY(mutex_);
    std::optional<Failure> failure_ GUARDED_BY(mutex_);
    bool aborted_ GUARDED_BY(mutex_) = false;  // the communicator has been given up
    bool stop_ GUARDED_BY(mutex_) = false;
    ddprun::TimePoint next_look_ GUARDED_BY(mutex_);        // at the peers' processes
    const NcclWork* held_up_ GUARDED_BY(mutex_) = nullptr;  // the oldest work at the last look, if it needs a lost peer
    ddprun::TimePoint held_up_since_ GUARDED_BY(mutex_);
    std::optional<Failure> heard_ GUARDED_BY(mutex_);                  // until an operation has ended after it
    std::optional<ddprun::TimePoint> heard_until_ GUARDED_BY(mutex_);  // for the oldest work, once it has begun
    bool is_shared_ GUARDED_BY(mutex_) = false;                        // failure_ is that of another group
    std::optional<CallbackThread> callbacks_;                          // ends before the rest of this
    std::thread thread_;
};

}  // namespace ddp::detail
