#pragma once
// WorkTable: the works of a rank from their submission until they can be completed. submit() and any_submitted() may be
// called by any thread; all else is called by the parts of P2p, under its lock.

#include <atomic>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "common/mutex.hpp"
#include "worker_lib/src/native/p2p/running.hpp"
#include "worker_lib/src/native/p2p/work.hpp"

namespace ddp::detail::p2p {

class WorkTable {
public:
    using WorkPtr = std::shared_ptr<P2pWork>;
    /// A work that has ended, and its error; null: none.
    struct Ended {
        WorkPtr work;
        std::exception_ptr error;
    };

    void submit(const WorkPtr& work) EXCLUDES(mutex_);
    [[nodiscard]] bool any_submitted(std::memory_order order) const { return any_submitted_.load(order); }

    /// Moves the submitted works to those in flight, and returns them.
    [[nodiscard]] std::deque<WorkPtr> take_submitted() REQUIRES(kRunning) EXCLUDES(mutex_);
    /// Returns the works in flight by number, the oldest first.
    [[nodiscard]] const std::map<std::uint64_t, WorkPtr>& in_flight() const REQUIRES(kRunning) { return in_flight_; }
    /// Marks transfers as done, and ends each work whose transfers all are; empties `finished`.
    void collect(std::vector<PendingTransfer>& finished) REQUIRES(kRunning);
    /// Ends all works in flight because the group failed with `why`, each with the error that `error_of` returns.
    void fail_all(ErrorCode why, const std::function<Error(const P2pWork&)>& error_of) REQUIRES(kRunning);
    [[nodiscard]] bool any_ended() const REQUIRES(kRunning) { return !ended_.empty(); }
    /// Returns the works that have ended. The caller completes them when it holds no lock.
    [[nodiscard]] std::vector<Ended> take_ended() REQUIRES(kRunning) { return std::exchange(ended_, {}); }

private:
    std::map<std::uint64_t, WorkPtr> in_flight_ GUARDED_BY(kRunning);
    std::vector<Ended> ended_ GUARDED_BY(kRunning);
    std::atomic<bool> any_submitted_{false};
    ddprun::Mutex mutex_ ACQUIRED_AFTER(kRunning);
    std::deque<WorkPtr> submitted_ GUARDED_BY(mutex_);
};

}  // namespace ddp::detail::p2p
