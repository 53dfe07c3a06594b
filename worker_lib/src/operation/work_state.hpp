#pragma once
// WorkState: what a Work handle points to. The backend completes it once; any thread waits. Thread-safe.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock.hpp"
#include "ddp/work.hpp"
#include "worker_lib/src/board.hpp"

namespace ddp::detail {

/// A rank of a group, as errors name both: "rank 3 (host a, pid 71)".
struct Participant {
    std::string group;
    std::string rank;
    const void* of = nullptr;  ///< the same for all works of one group of this process, and no other
};

class WorkState {
public:
    WorkState(std::uint64_t seq, ddprun::TimePoint deadline, BoardTicket ticket = {})
        : seq_(seq), deadline_(deadline), ticket_(ticket) {}
    virtual ~WorkState() = default;

    [[nodiscard]] std::uint64_t seq() const { return seq_; }
    [[nodiscard]] ddprun::TimePoint deadline() const { return deadline_; }
    [[nodiscard]] bool done() const { return done_.load(std::memory_order_acquire); }
    /// What a public handle points to; null: nothing, the operation is done.
    [[nodiscard]] static WorkState* of(const Work& work) { return work.state_.get(); }
    /// Whose work it is, and what: "#183 all_reduce sum f32[6572160] 'bucket 3'". For errors; any thread.
    [[nodiscard]] virtual const Participant& owner() const = 0;
    [[nodiscard]] virtual std::string text() const = 0;

    /// The backend begins with it.
    void begin() const { ticket_.started(); }
    /// Gets what a callback has thrown, in words. The group has to be aborted for it: nobody else hears of it.
    using OnThrown = std::function<void(std::string_view)>;
    /// Ends the work, wakes the waiters and runs the callbacks on the calling thread. Only the first call counts. An
    /// Error gets the name of the operation.
    void complete(std::exception_ptr error, const OnThrown& on_thrown = {});
    /// Blocks until done or `until`; false when that passed. Throws the work's error.
    bool wait_until(ddprun::TimePoint until);
    /// Throws Error{InvalidArgument} if this thread is in a callback of the work's group, which cannot go on meanwhile.
    /// Call it only when the work is not done, and CALL would block.
    void refuse_inside_callback(std::string_view call) const;
    /// If this thread is in callbacks of that group: calls `end`, which must not throw, when it has left them and what
    /// they have thrown has been told. False, and `end` is not called: it is in none.
    /// group   Participant::of of its works
    [[nodiscard]] static bool after_callbacks(const void* group, std::function<void()> end);
    void then(std::function<void(std::exception_ptr)> callback);
    /// Throws Error{Timeout}: "… is not done WHEN".
    [[noreturn]] void throw_late(std::string_view when) const;

    /// What Work::wait means on this backend; the default blocks the host.
    virtual void wait();
    /// Whether wait() comes back only when the operation has ended.
    [[nodiscard]] virtual bool blocks_host() const { return true; }
    /// How long after its deadline the backend may take to end it, with an error that says who did not come. Then a
    /// waiter gives up by itself.
    [[nodiscard]] virtual ddprun::Duration grace() const { return std::chrono::seconds(4); }
    /// Somebody waits, for whoever reads the board: `blocked` until it has ended; else looks now and then, or has a
    /// device wait. wait() itself says nothing: who calls it may do so for somebody who goes on meanwhile.
    virtual void note_waiter(bool blocked) const { ticket_.waited(blocked); }
    /// The same of its end; `timed_out`: by a deadline.
    virtual void note_end(bool well, bool timed_out) const { ticket_.ended(well, timed_out); }
    /// The same of its group, which is given up because of it.
    virtual void note_abort(std::string_view reason) const { ticket_.aborted(reason); }

    /// It has been queued, and the caller holds no lock.
    virtual void start() {}
    /// Somebody is about to wait: the backend may have its thread do the work.
    virtual void help() {}
    /// Somebody wants it done, but does not wait, or not for as long as it takes.
    virtual void hurry() {}

private:
    [[nodiscard]] std::exception_ptr named(const std::exception_ptr& error) const;

    const std::uint64_t seq_;
    const ddprun::TimePoint deadline_;
    const BoardTicket ticket_;
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::atomic<bool> done_ = false;  ///< changes with the mutex held
    std::exception_ptr error_;
    std::vector<std::function<void(std::exception_ptr)>> callbacks_;
};

}  // namespace ddp::detail
