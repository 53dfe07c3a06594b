#pragma once
// DeviceQueue: runs the operations of all NCCL groups of one device, in the order of their submission, since NCCL
// demands one order per device; and ends groups that fail, together. There is one per process and device, as long as a
// group uses it. The threads:
//
//   caller           submit(): pushes an operation, which has marked the caller's stream. NcclWork::wait(): waits for
//                    its launch, then makes the caller's stream wait for its end
//   "ddp-nccl"       the queue's own: launches, asks events and NCCL for progress, ends what is done
//   "ddp-watchdog"   look(): notices deadlines, lost peers and aborts that do not return, see GroupWatch
//   "ddp-abort"      one per failed group: waits until ddp-nccl has left the group, aborts it, and ends its operations
//
// ddp-nccl is in a group only while busy_with_ names it. If it, or an abort, has not left a failed group within
// NcclLimits::abort_timeout, the process ends: the device may write to the group's buffers for ever. What the abort may
// wait for has NcclLimits::program_timeout more: see may_wait().

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/mutex.hpp"
#include "worker_lib/src/cuda/group_device.hpp"
#include "worker_lib/src/cuda/waiting.hpp"
#include "worker_lib/src/nccl/callback_thread.hpp"
#include "worker_lib/src/nccl/communicator.hpp"
#include "worker_lib/src/nccl/group_watch.hpp"
#include "worker_lib/src/nccl/operations.hpp"
#include "worker_lib/src/nccl/peers.hpp"
#include "worker_lib/src/nccl/watchdog.hpp"
#include "worker_lib/src/operation/device_call_mark.hpp"

namespace ddp::detail {

/// One group, as its backend makes it for the queue.
struct NcclGroup : std::enable_shared_from_this<NcclGroup> {
    NcclGroup(std::string name, Peers its_peers, const NcclLimits& its_limits)
        : own_rank(std::move(name)), peers(std::move(its_peers)), limits(its_limits), watch(own_rank, peers, limits) {}
    ~NcclGroup() {
        if (drained != nullptr) device->release(drained);
    }
    NcclGroup(const NcclGroup&) = delete;
    NcclGroup& operator=(const NcclGroup&) = delete;

    const std::string own_rank;  ///< as own_rank_text()
    const Peers peers;
    const NcclLimits limits;
    // Set before add(), and not changed then.
    std::shared_ptr<GroupDevice> device;
    std::unique_ptr<Communicator> communicator;
    std::optional<NcclTarget> target;
    CUevent drained = nullptr;  ///< of the abort
    std::optional<CallbackThread> callbacks;

    // The queue's mutex guards the rest.
    enum class State { kRunning, kAborting, kOver };
    GroupWatch watch;
    State state = State::kRunning;
    ddprun::TimePoint failed_at;
    ddprun::TimePoint abort_deadline;
    bool is_late = false;  ///< the abort_deadline had passed at the last look, and the second look is still to come
    bool has_failed_others = false;  ///< because its abort waited for them
    /// An operation has begun there and not ended before the abort, or that is not known. A replay does not count.
    bool is_on_device = true;
    bool is_starting = true;  ///< the program does not have it yet
    bool is_capturing = false;
    bool closing = false;
    bool is_behind = false;  ///< since `closing`, the queue has found that the oldest operation goes on
    std::function<std::optional<Error>()> other_failure;  ///< of a group that fails with this one, or none
    std::function<void()> before_abort;                   ///< empty: nothing is to be called
};

class DeviceQueue : public std::enable_shared_from_this<DeviceQueue> {
public:
    /// Returns the queue of a device. Throws Error{System} when the device cannot be used, or there is no thread.
    [[nodiscard]] static std::shared_ptr<DeviceQueue> of(const CudaApi& cuda, int device);
    DeviceQueue(const CudaApi& cuda, int device);
    ~DeviceQueue();
    DeviceQueue(const DeviceQueue&) = delete;
    DeviceQueue& operator=(const DeviceQueue&) = delete;

    void add(std::shared_ptr<NcclGroup> group) EXCLUDES(mutex_);
    /// Fails the operations in flight with Aborted. Returns when all have ended and their callbacks have returned: no
    /// thread uses the group any more. Must not be called from a callback.
    void remove(NcclGroup& group) EXCLUDES(mutex_);
    /// Takes over an operation, which fails if the group has failed.
    void submit(NcclGroup& group, std::shared_ptr<NcclWork> work) EXCLUDES(mutex_);
    /// Fails all operations of the group, in flight and to come, and of the groups that fail with it. Only the first
    /// failure counts; its cause names the group. Returns at once.
    void fail(NcclGroup& group, Failure failure) EXCLUDES(mutex_);
    [[nodiscard]] std::optional<Failure> failure_of(const NcclGroup& group) const EXCLUDES(mutex_);
    /// Sets NcclGroup::other_failure. Afterwards the earlier one is not called any more.
    void fail_with(NcclGroup& group, std::function<std::optional<Error>()> other) EXCLUDES(mutex_);
    /// From now on the group may fail others. The program gets it.
    void hand_out(NcclGroup& group) EXCLUDES(mutex_);
    /// Sets NcclGroup::before_abort, see BackendImpl::before_abort.
    void before_abort(NcclGroup& group, std::function<void()> note) EXCLUDES(mutex_);
    /// From now on operations of the group are captured. Returns false, and changes nothing, if another group of the
    /// device has a graph.
    [[nodiscard]] bool begin_capture(NcclGroup& group) EXCLUDES(mutex_);
    void end_capture(NcclGroup& group) EXCLUDES(mutex_);
    /// Has threads in remove() look again.
    void notice_idle_callbacks() EXCLUDES(mutex_);

    /// Fails what has to fail by now. Returns when to look again; nothing: after Watchdog::wake(). The watchdog's
    /// thread.
    [[nodiscard]] std::optional<ddprun::TimePoint> look() EXCLUDES(mutex_);

private:
    struct Launch {
        NcclGroup* group;
        std::shared_ptr<NcclWork> work;
    };

    void run() EXCLUDES(mutex_);
    [[nodiscard]] bool has_work() const REQUIRES(mutex_);
    [[nodiscard]] bool step_launch() REQUIRES(mutex_);
    [[nodiscard]] bool step_group(NcclGroup& group) REQUIRES(mutex_);
    void find_behind(NcclGroup& group) REQUIRES(mutex_);
    void pause(Backoff& backoff) REQUIRES(mutex_);
    /// Releases the mutex while the queue's thread is in the group. Returns the time.
    ddprun::TimePoint enter(NcclGroup& group) RELEASE(mutex_);
    void leave() ACQUIRE(mutex_);
    /// Marks in the flight record that the thread is in no call, or that NCCL goes on with a launch.
    void mark_no_call() REQUIRES(mutex_);
    [[nodiscard]] const NcclWork* connecting() const REQUIRES(mutex_);
    void fail_now(NcclGroup& group, Failure failure, bool shares) REQUIRES(mutex_);
    void share(const NcclGroup& from) REQUIRES(mutex_);
    void abort(NcclGroup& group) EXCLUDES(mutex_);
    /// Returns whether ddp-nccl is in a call for the group that does not return at once.
    [[nodiscard]] bool is_in_call(const NcclGroup& group, ddprun::TimePoint now) const REQUIRES(mutex_);
    [[nodiscard]] bool may_wait(NcclGroup& group, ddprun::TimePoint now) REQUIRES(mutex_);
    [[nodiscard]] bool fail_others(const NcclGroup& group) REQUIRES(mutex_);
    [[nodiscard]] bool is_stuck(NcclGroup& group, ddprun::TimePoint now) REQUIRES(mutex_);
    [[nodiscard]] std::string last_line(NcclGroup& group, ddprun::TimePoint now) REQUIRES(mutex_);
    void end_works(NcclGroup& group) REQUIRES(mutex_);

    const CudaApi cuda_;
    const PrimaryContext context_;
    const std::shared_ptr<Watchdog> watchdog_;
    mutable ddprun::Mutex mutex_;  // taken before CallbackThread's, never after
    ddprun::Condition changed_;
    std::vector<std::shared_ptr<NcclGroup>> groups_ GUARDED_BY(mutex_);
    std::deque<Launch> to_launch_ GUARDED_BY(mutex_);
    bool is_launching_ GUARDED_BY(mutex_) = false;  // NCCL has been called for the first of them
    NcclGroup* busy_with_ GUARDED_BY(mutex_) = nullptr;
    ddprun::TimePoint busy_since_ GUARDED_BY(mutex_);
    ddprun::TimePoint launching_since_ GUARDED_BY(mutex_);
    const DeviceCallMark call_mark_;                 // the queue's thread
    bool has_submitted_ GUARDED_BY(mutex_) = false;  // since the last look()
    bool is_watched_ GUARDED_BY(mutex_) = false;     // look() will be called again without wake()
    bool stop_ GUARDED_BY(mutex_) = false;
    std::thread thread_;  // last: it uses the above
};

}  // namespace ddp::detail
