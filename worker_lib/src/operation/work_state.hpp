#pragma once
// WorkState: the state of one operation that a Work handle points to. The backend makes it and completes it once; any
// thread waits for it. Thread-safe.

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock.hpp"
#include "common/mutex.hpp"
#include "ddp/work.hpp"
#include "worker_lib/src/recorder/flight_recorder.hpp"
#include "worker_lib/src/util/paused_time.hpp"

namespace ddp::detail {

/// A rank of a group, as errors name both: "rank 3 (host a, pid 71)".
struct Participant {
    std::string group;
    std::string rank;
    const void* of = nullptr;  ///< the same for all works of one group of this process, and for no others
};

class WorkState {
public:
    WorkState(std::uint64_t seq, ddprun::TimePoint deadline, RecordEntry entry = {})
        : seq_(seq), deadline_(deadline), entry_(entry) {}
    virtual ~WorkState() = default;

    [[nodiscard]] std::uint64_t seq() const { return seq_; }
    [[nodiscard]] ddprun::TimePoint deadline() const { return deadline_; }
    [[nodiscard]] bool done() const { return done_.load(std::memory_order_acquire); }
    /// Returns the state that a public handle points to; null if the handle was done from the start.
    [[nodiscard]] static const std::shared_ptr<WorkState>& of(const Work& work) { return work.state_; }
    [[nodiscard]] static Work handle(std::shared_ptr<WorkState> state) { return Work(std::move(state)); }
    /// Returns the handle of operation `seq`, which is done, without an error.
    [[nodiscard]] static Work done_handle(std::uint64_t seq) { return Work(seq); }
    /// Returns the rank that the work belongs to, for errors. Any thread.
    [[nodiscard]] virtual const Participant& owner() const = 0;
    /// Returns the operation as errors name it: "#183 all_reduce sum f32[6572160] 'bucket 3'". Any thread.
    [[nodiscard]] virtual std::string text() const = 0;

    /// Records that the backend has started the operation.
    void begin() const { entry_.started(); }
    /// Receives the text of a callback's exception. It has to abort the group, because no other rank learns of it.
    using OnThrown = std::function<void(std::string_view)>;
    using Callback = std::function<void(std::exception_ptr)>;
    /// Ends the work, wakes the waiters and runs the callbacks on the calling thread. Only the first call counts. An
    /// Error gets the name of the operation.
    void complete(std::exception_ptr error, const OnThrown& on_thrown = {}) EXCLUDES(mutex_);
    /// The two halves of complete(), for a thread that must not run callbacks: end() returns them for run(), which any
    /// other thread calls.
    [[nodiscard]] std::vector<Callback> end(std::exception_ptr error) EXCLUDES(mutex_);
    void run(const std::vector<Callback>& callbacks, const OnThrown& on_thrown) EXCLUDES(mutex_);
    /// Blocks until the work is done or `until`; returns false if that passed. Throws the work's error.
    bool wait_until(ddprun::TimePoint until) EXCLUDES(mutex_);
    /// Throws Error{InvalidArgument} if this thread is in a callback of the work's group, which cannot go on meanwhile.
    /// Call it only when the work is not done and CALL would block.
    void refuse_inside_callback(std::string_view call) const;
    /// If this thread is in callbacks of that group, returns true and calls `end` after it has left them and their
    /// exceptions have been reported. Otherwise returns false and drops `end`, which must not throw.
    /// group   Participant::of of its works
    [[nodiscard]] static bool after_callbacks(const void* group, std::function<void()> end);
    /// Returns whether this thread is in a callback of that group.
    [[nodiscard]] static bool is_in_callback(const void* group);
    void then(Callback callback) EXCLUDES(mutex_);
    /// Throws Error{Timeout}: "… is not done WHEN".
    [[noreturn]] void throw_late(std::string_view when) const;

    /// Implements Work::wait on this backend. The default blocks the host.
    virtual void wait();
    /// Returns whether wait() returns only when the operation has ended.
    [[nodiscard]] virtual bool blocks_host() const { return true; }
    /// Returns how long after the deadline of the work the backend may still take to fail it with an error that names
    /// the absent ranks. After that a waiter gives up by itself.
    [[nodiscard]] virtual ddprun::Duration grace() const { return std::chrono::seconds(4); }
    /// Records that the program waits. `blocked`: until the work has ended; else it only polls, or makes a device wait.
    /// wait() does not record it, because a thread of the library may wait while the program goes on.
    virtual void note_waiter(bool blocked) const { entry_.waited(blocked); }
    /// Records that the work is about to fail because another rank was lost, or reported its failure.
    virtual void note_peer_failed() const { entry_.peer_failed(); }
    /// Records the end; `timed_out`: by a deadline.
    virtual void note_end(bool well, bool timed_out) const { entry_.ended(well, timed_out); }
    /// Records that the group is aborted because of this work.
    virtual void note_abort(std::string_view reason) const { entry_.aborted(reason); }

    /// Counts the handles of the program.
    void add_handle() { handles_.fetch_add(1, std::memory_order_relaxed); }
    /// Returns whether it was the last one.
    [[nodiscard]] bool remove_handle() { return handles_.fetch_sub(1, std::memory_order_acq_rel) == 1; }
    /// Records that wait() has returned: from then on memory is safe, by a stream's order if the work goes on.
    void note_waited() { waited_.store(true, std::memory_order_relaxed); }
    /// Ends the work because its last handle dies by an exception: aborts the group, and waits until no thread uses the
    /// buffers any more. Does nothing after note_waited(), or inside a callback of the group.
    void abandon() noexcept;
    /// Aborts the group with `reason`. Returns false if this process does not run the group, or not any more.
    virtual bool abort_group(std::string_view /*reason*/) { return false; }

    /// Starts the queued work. The caller holds no lock.
    virtual void start() {}
    /// Lets a thread that is about to wait run the work, if the backend supports that.
    virtual void help() {}
    /// Makes the backend run the work on its own thread: the program does not wait for it, or not until its end.
    virtual void hurry() {}

private:
    [[nodiscard]] ddprun::TimePoint last_moment() const;
    [[nodiscard]] std::exception_ptr named(const std::exception_ptr& error) const;

    const std::uint64_t seq_;
    const ddprun::TimePoint deadline_;
    const ddprun::Duration paused_before_ = paused_time();
    const RecordEntry entry_;
    mutable ddprun::Mutex mutex_;
    ddprun::Condition changed_;
    std::atomic<int> handles_{0};
    std::atomic<bool> waited_{false};
    std::atomic<bool> done_ = false;  ///< changes with the mutex held
    std::exception_ptr error_ GUARDED_BY(mutex_);
    std::vector<Callback> callbacks_ GUARDED_BY(mutex_);
};

}  // namespace ddp::detail
